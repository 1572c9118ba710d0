"""ONNX operators as expressions: one family per module, one explicit registry in `registry`."""
