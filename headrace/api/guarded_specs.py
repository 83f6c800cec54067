"""Which operators can bear records on which their function raises, and what they become then."""

from typing import Final

from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorSpec
from headrace.functions.failures import GuardedFunction, GuardedKeyedFunction
from headrace.functions.process import OutputTag
from headrace.functions.specs import (
    FilterSpec,
    FlatMapSpec,
    FunctionSpec,
    KeyedProcessSpec,
    MapSpec,
    ProcessSpec,
)

_METHODS: Final[dict[type[OperatorSpec], str]] = {
    MapSpec: "map",
    FlatMapSpec: "flat_map",
    FilterSpec: "filter",
    ProcessSpec: "process_element",
    KeyedProcessSpec: "process_element",
}


def guarded_spec(
    spec: OperatorSpec, operator_name: str, tag: OutputTag | None, *, is_keyed: bool
) -> OperatorSpec:
    """Return the spec whose function skips such records, or sends them to `tag`. ProgramError for other operators."""
    method = _METHODS.get(type(spec))
    if method is None or not isinstance(spec, FunctionSpec):
        raise ProgramError(
            f"operator '{operator_name}' cannot skip single records: "
            "on_failure is for map, flat_map, filter and process"
        )
    if isinstance(spec.function, GuardedFunction | GuardedKeyedFunction):
        raise ProgramError(f"operator '{operator_name}' has an on_failure already")
    if is_keyed:
        return KeyedProcessSpec(GuardedKeyedFunction(spec.function, method, tag))
    return ProcessSpec(GuardedFunction(spec.function, method, tag))
