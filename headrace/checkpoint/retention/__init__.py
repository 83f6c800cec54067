"""Which snapshots are kept: completed checkpoints, clean-up, leases of readers, disposal."""
