"""Results that consumers read while they are made: pipelined partitions and their subpartitions."""
