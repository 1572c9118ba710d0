"""Operators beyond the standard that exporters and runtimes write, each as a function body of standard operators."""
