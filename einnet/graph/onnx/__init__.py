"""ONNX in: a model file as a tensor program."""
