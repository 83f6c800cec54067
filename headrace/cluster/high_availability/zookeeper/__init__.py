"""Election and pointers to job graphs in ZooKeeper; needs the extra `headrace[zookeeper]`.

`zookeeper_client` talks to the servers; `zookeeper_leader` stores the leader and the pointers to jobs.
"""
