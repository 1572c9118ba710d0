"""Programs for a CUDA device: cuBLASLt, cuDNN and generated code."""
