"""PyFlink's `datastream.connectors.elasticsearch`, whose names are refused when used: re-exports."""

from headrace.connectors.pyflink_refusals import (
    Elasticsearch6SinkBuilder,
    Elasticsearch7SinkBuilder,
    ElasticsearchEmitter,
    ElasticsearchSink,
    ElasticsearchSinkBuilderBase,
    FlushBackoffType,
)

__all__ = [
    "FlushBackoffType",
    "ElasticsearchEmitter",
    "ElasticsearchSinkBuilderBase",
    "Elasticsearch6SinkBuilder",
    "Elasticsearch7SinkBuilder",
    "ElasticsearchSink",
]
