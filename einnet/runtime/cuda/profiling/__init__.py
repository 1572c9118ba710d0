"""What kernels cost on a card: measured there, packed here, and laws for the rest."""
