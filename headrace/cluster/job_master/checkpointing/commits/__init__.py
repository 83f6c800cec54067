"""Output that sinks have prepared, and its publication with a checkpoint."""
