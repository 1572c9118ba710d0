"""Derivations: rules, what they are made of, and the checker. Imported with their printers, which `steps` names and these modules define."""

from einnet.derivation import einfile, markup

__all__ = ["einfile", "markup"]
