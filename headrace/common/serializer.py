"""PyFlink's `common.serializer`: re-exports."""

from headrace.functions.serialization import TypeSerializer

__all__ = ["TypeSerializer"]
