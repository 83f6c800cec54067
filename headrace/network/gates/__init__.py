"""Input gates and their channels: local, remote, recovered and not yet known ones."""
