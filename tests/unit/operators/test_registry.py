"""Every kind of spec has its operator."""

import inspect

from headrace.core.operator_spec import OperatorSpec
from headrace.functions.specs import columnar_specs, operator_specs
from headrace.operators import registry


def test_every_spec_has_an_operator_and_every_operator_a_spec() -> None:
    kinds = {
        spec.kind
        for module in (columnar_specs, operator_specs)
        for _, spec in inspect.getmembers(module, inspect.isclass)
        if issubclass(spec, OperatorSpec) and "kind" in vars(spec)
    }
    assert kinds == registry.operator_kinds()
