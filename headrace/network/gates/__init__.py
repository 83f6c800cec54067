"""Input gates and their channels: local, remote and recovered ones."""
