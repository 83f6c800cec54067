"""PyFlink's `datastream.connectors.hybrid_source`, whose names are refused when used: re-exports."""

from headrace.connectors.jvm_formats import (
    HybridSource,
    HybridSourceBuilder,
)

__all__ = [
    "HybridSource",
    "HybridSourceBuilder",
]
