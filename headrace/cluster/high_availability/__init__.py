"""High availability: several drivers of one cluster, of which one leads, and what it must know to go on with all jobs.

`high_availability_services` opens all of it from the settings. Beside it stand the election
(`leader_election_service`), its places (`leader_records`: files, `zookeeper`, `kubernetes`; `coordination` opens one),
what outlives a leader (job graphs, their blobs, results of jobs), and for clients the leader's address
(`leader_retrieval_service`). Checkpoints lie in the checkpoint storage, which fences off old drivers by itself
(`checkpoint.storage.lineages`).
"""
