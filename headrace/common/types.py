"""PyFlink's `common.types`: re-exports."""

from headrace.core.types.rows import Row, RowKind

__all__ = ["Row", "RowKind"]
