"""Rules of sums: what is summed is determined, or shared out."""
