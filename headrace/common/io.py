"""PyFlink's `common.io`: InputFormat, which is refused where it is used."""

from headrace.core.pyflink_refusals import InputFormat

__all__ = ["InputFormat"]
