"""The models and measurements behind the published tables. Not installed with einnet: run from a checkout."""
