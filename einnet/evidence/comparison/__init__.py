"""Values side by side: outputs and times beside those of ONNX Runtime, what is not finite, and two expressions at a few points."""
