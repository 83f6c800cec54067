"""Results in files: bounded blocking, sort-merge and hybrid partitions, with reading and writing beside the task."""
