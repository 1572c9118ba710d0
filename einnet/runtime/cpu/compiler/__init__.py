"""TVM in a process of its own: 290 MB and seconds of loading that the process of a run does without."""
