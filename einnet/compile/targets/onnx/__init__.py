"""ONNX models for ONNX Runtime."""
