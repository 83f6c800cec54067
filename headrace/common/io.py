"""PyFlink's `common.io`: InputFormat, which is refused when used."""

from headrace.core.pyflink_refusals import InputFormat

__all__ = ["InputFormat"]
