"""Engines against each other on one model: separate pinned processes, equal threads, interleaved rounds, outputs compared before times count."""
