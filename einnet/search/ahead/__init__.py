"""What a search asks others to find ahead of it."""
