"""State of operators: what a backend offers, and the backends that keep it on the heap and in RocksDB.

Duty: hold state by key and window, find it under the current key, write it with snapshots and read it back.
Rooms: `heap`, `rocksdb`, and `queryable` for reads of running tasks. `keyed_chunks` and `operator_state_chunks` are
state in files, `restored` is what comes back from them.
Neighbours: imports the ground; `operators` use it.
Start reading: `backend`, then `heap/backend`.
"""
