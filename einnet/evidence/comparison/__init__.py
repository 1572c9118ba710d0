"""Numbers beside those of ONNX Runtime: outputs, times, and what is not finite."""
