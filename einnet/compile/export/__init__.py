"""Programs as standard ONNX models."""
