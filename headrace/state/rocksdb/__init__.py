"""Keyed state on the worker's disk, in RocksDB; needs the extra `headrace[rocksdb]`.

Neighbours: `state.heap` keeps the same state in memory, and reads the same canonical savepoints. Start reading:
`backend`.
"""
