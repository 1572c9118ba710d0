"""Programs for CUDA devices: plain data that a device runs, and that a CPU can run for tests."""
