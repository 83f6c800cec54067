"""PyFlink's `common.configuration`: re-exports."""

from headrace.core.configuration import Configuration

__all__ = ["Configuration"]
