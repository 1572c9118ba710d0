"""ONNX out: a plan as a standard ONNX model that any runtime can run. Vendor kernels are nodes, generated kernels model-local functions."""
