"""PyFlink's `common.input_dependency_constraint`: re-exports."""

from headrace.api.jvm_settings import InputDependencyConstraint

__all__ = ["InputDependencyConstraint"]
