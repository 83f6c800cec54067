"""FileSink: records become files, which are published with checkpoints."""
