"""Keyed state on the worker's disk, in RocksDB; needs the extra `headrace[rocksdb]`.

Neighbours: `state.heap` does the same in memory, and takes the same canonical savepoints. Start reading: `backend`.
"""
