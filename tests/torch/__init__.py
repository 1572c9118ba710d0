"""PyTorch in. All of it is skipped where torch is not installed: `pip install -e '.[torch]'`."""
