"""What the buffers of a plan hold while it runs."""
