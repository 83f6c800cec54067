"""Election and pointers to job graphs in ZooKeeper; needs the extra `headrace[zookeeper]`.

`zookeeper_client` speaks with the servers; `zookeeper_leader` holds who leads, and the jobs.
"""
