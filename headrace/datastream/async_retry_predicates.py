"""PyFlink's `datastream.async_retry_predicates`: re-exports."""

from headrace.functions.async_io import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)

__all__ = ["empty_result_predicate", "has_exception_predicate", "exception_type_predicate"]
