"""Results that consumers read while they are produced: pipelined partitions and their subpartitions."""
