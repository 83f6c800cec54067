"""Client side of a submitted job: the job client, its results and its state."""
