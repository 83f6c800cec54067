"""PyFlink's `datastream.connectors.hybrid_source`: re-exports."""

from headrace.connectors.hybrid_source import (
    HybridSource,
    HybridSourceBuilder,
)

__all__ = [
    "HybridSource",
    "HybridSourceBuilder",
]
