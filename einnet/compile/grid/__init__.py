"""One artifact for ranges of several dimensions: a plan for each tuple of sizes that was measured, and for others when they are first used."""
