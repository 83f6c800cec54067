"""RecordWriter: puts the batches that an operator emits into the buffers of a partition."""
