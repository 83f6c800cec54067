"""PyFlink's `datastream.connectors.cassandra`, whose names are refused when used: re-exports."""

from headrace.connectors.pyflink_refusals import (
    CassandraCommitter,
    CassandraFailureHandler,
    CassandraSink,
    ClusterBuilder,
    ConsistencyLevel,
    MapperOptions,
)

__all__ = [
    "CassandraSink",
    "ConsistencyLevel",
    "MapperOptions",
    "ClusterBuilder",
    "CassandraCommitter",
    "CassandraFailureHandler",
]
