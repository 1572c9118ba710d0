"""Models that ONNX Runtime runs as they are."""
