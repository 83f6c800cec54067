"""State of operators: the interface of backends, and those on the heap and in RocksDB.

Duty: hold state by key and window, find it under the current key, write it with snapshots and read it back.
Rooms: `heap`, `rocksdb`, and `queryable` for reads of running tasks. `keyed_chunks` is keyed
state in files, `restored_keyed_state` reads it back, and `typed_state` is the base of all handles.
Neighbours: imports the ground; `operators` use it.
Start reading: `backend`, then `heap/backend`.
"""
