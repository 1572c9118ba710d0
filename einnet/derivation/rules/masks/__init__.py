"""Rules of masks: what they leave out is not computed."""
