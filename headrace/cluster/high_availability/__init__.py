"""High availability: elects a leader among the drivers of one cluster, and stores what it needs to continue all jobs.

`high_availability_services` opens everything from the settings. The other modules are the election
(`leader_election_service`), its places (`leader_records`: files, `zookeeper`, `kubernetes`; `coordination` opens one),
stores that outlive a leader (job graphs, their blobs, results of jobs), and for clients the leader's address
(`leader_retrieval_service`). Checkpoints are kept in the checkpoint storage, which fences off old drivers by itself
(`checkpoint.storage.lineages`).
"""
