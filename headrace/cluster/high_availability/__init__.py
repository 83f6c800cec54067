"""High availability: several drivers of one cluster, of which one leads, and what it must know to go on with all jobs.

`high_availability_services` opens all of it from the settings. Beside it stand the election (`leader_election_service`,
with the lease as rules and as files) and what outlives a leader: job graphs, their blobs, and results of jobs.
Checkpoints lie in the checkpoint storage, which fences off old drivers by itself (`checkpoint.storage.lineages`).
"""
