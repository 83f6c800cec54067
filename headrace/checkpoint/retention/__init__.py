"""Retention of snapshots: the completed checkpoints, clean-up, leases of readers, disposal."""
