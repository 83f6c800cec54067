"""RecordWriter: from the batches that an operator emits to the partition's buffers."""
