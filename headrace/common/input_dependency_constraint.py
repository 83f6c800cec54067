"""PyFlink's `common.input_dependency_constraint`: re-exports."""

from headrace.api.settings.pyflink_refusals import InputDependencyConstraint

__all__ = ["InputDependencyConstraint"]
