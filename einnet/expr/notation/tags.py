"""HTML and SVG elements as text."""

from __future__ import annotations

from html import escape


def tag(name: str, content: str = "", /, **attributes: object) -> str:
    """`<name attribute="value">content</name>`; `class_` is class, `stroke_width` stroke-width, numbers have one decimal, None is left out.

    Attributes are escaped, the content is not: it may hold elements.
    """
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items() if value is not None)
    return f"<{name}{given}/>" if not content and name in EMPTY else f"<{name}{given}>{content}</{name}>"


EMPTY = ("rect", "path", "circle")


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))
