"""Results in files: bounded blocking, sort-merge and hybrid partitions, read and written concurrently with the task."""
