"""What a program can be made for, one folder each."""
