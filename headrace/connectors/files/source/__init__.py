"""FileSource: turns files into splits, and splits into records."""
