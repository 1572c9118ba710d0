"""GraphNet's samples (github.com/PaddlePaddle/GraphNet), on the processor."""
