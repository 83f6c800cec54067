"""What is told of a fold whose result is not of the type that it is kept under: its own file and line."""

from typing import Any

from headrace.core.errors import UserCodeError
from headrace.functions.record import AggregateFunction
from headrace.graph.function_location import location_of
from headrace.state.backend import StateAccessError


def refused_fold(
    error: StateAccessError, state_name: str, function: Any, operator_name: str, *, is_input: bool
) -> Exception:
    """Return the error for what `function` gave to the state `state_name`; `error` itself where it gave nothing.

    `is_input`: nothing was there to be reduced, so that the value can only be the record itself.
    """
    misfit = error.misfit
    is_aggregate = isinstance(function, AggregateFunction)
    if misfit is None or error.state_name != state_name or (is_input and not is_aggregate):
        return error
    rule = (
        f"the accumulator must be of the accumulator_type {misfit.type_text}, but it is"
        if is_aggregate
        else f"reduce must return the type of its input, {misfit.type_text}, but it returned"
    )
    text = f"{rule} {misfit.shown}: {misfit.reason}"
    return UserCodeError("TypeError", text, operator_name, location_of(function), "")
