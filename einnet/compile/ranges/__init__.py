"""One program for a range of sizes of a dimension: a target, size by size."""
