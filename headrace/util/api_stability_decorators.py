"""PyFlink's `util.api_stability_decorators`: its names are refused in a sentence."""

from headrace.core.pyflink_refusals import refuse_internal_name as __getattr__

__all__ = ["__getattr__"]
