"""Generated kernels as grids of threads, and their CUDA text."""
