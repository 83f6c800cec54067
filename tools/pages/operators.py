"""operators.md: which operator runs which kind of node of a graph."""

import inspect
from typing import Any, Final

from headrace.core.operator_spec import OperatorSpec
from headrace.functions.specs import columnar_specs, operator_specs
from headrace.operators import registry
from headrace.operators.runtime.operator import SourceOperator, TwoInputOperator
from tools.pages.markdown import first_paragraph, table

_INTRODUCTION: Final = """\
# Operators

A node of a graph carries a spec of `headrace/functions/specs/`: its kind, the user's functions and what was set on the
stream. On the worker, `headrace/operators/registry.py` makes the operator
from it.
"""


def operators_page() -> str:
    """The registry as a table."""
    headings = ("kind", "spec", "operator", "inputs", "name in plans", "meaning")
    return "\n".join([_INTRODUCTION, *table(headings, map(_row, _kinds()))]) + "\n"


def _kinds() -> list[type[OperatorSpec]]:
    kinds = [
        value
        for module in (operator_specs, columnar_specs)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, OperatorSpec) and "kind" in vars(value)
    ]
    missing = registry.operator_kinds() - {one.kind for one in kinds}
    assert not missing, f"specs in a module that is not looked at: {', '.join(sorted(missing))}"
    return kinds


def _row(spec: type[OperatorSpec]) -> tuple[str, ...]:
    operator: Any = registry.operator_class(spec.kind)
    return (
        f"`{spec.kind}`",
        f"`{spec.__name__}`",
        f"`{operator.__module__.removeprefix('headrace.')}.{operator.__name__}`",
        _inputs_of(operator),
        spec.default_name,
        first_paragraph(spec),
    )


def _inputs_of(operator: type[Any]) -> str:
    if issubclass(operator, SourceOperator):
        return "none"
    return "2" if issubclass(operator, TwoInputOperator) else "1"
