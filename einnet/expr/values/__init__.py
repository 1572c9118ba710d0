"""What expressions evaluate to: machine numbers, exact rationals, residues, intervals, at all points or at some."""
