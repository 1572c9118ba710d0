"""The documentation site: MyST Markdown, Furo, and pages that are generated from the code. `make docs` builds it, any warning fails."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]

project = "einnet"
author = "the einnet authors"
html_title = "einnet"
extensions = ["myst_parser", "einnet_pages", "paper_pages"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["einnet.css"]
html_copy_source = False
html_show_sphinx = False
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True
highlight_language = "none"
