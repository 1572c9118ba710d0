"""Other engines on the same models: separate pinned processes, equal threads, interleaved rounds, outputs compared before times count."""
