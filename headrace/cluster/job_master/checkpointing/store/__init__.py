"""Completed checkpoints of one job: kept, published, found again after a restart."""
