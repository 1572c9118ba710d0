"""A target of its own, as small as it can be: programs that numpy runs. The worked example of docs/extend.md."""
