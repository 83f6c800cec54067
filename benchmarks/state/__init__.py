"""Questions about keyed state: what checkpoints, restores and accesses cost, on the heap and in RocksDB."""
