"""State in which built-in operators store records of a stream, with the type that the stream declares.

A user's fold whose result is not of the declared type is reported with the function's own file and line.
"""

from typing import Any

from headrace.core.errors import UserCodeError
from headrace.core.types.rows import Row, row_of
from headrace.functions.record import AggregateFunction
from headrace.functions.state import ListStateDescriptor, StateDescriptor
from headrace.graph.function_location import location_of
from headrace.state.backend import EntryScope, KeyedStateBackend, StateAccessError
from headrace.state.evolution import StateIncompatibleError


def refused_fold(
    error: StateAccessError, state_name: str, function: Any, operator_name: str, *, is_input: bool
) -> Exception:
    """Return the error for a value that `function` put into the state `state_name`; `error` itself for another cause.

    `is_input`: there was nothing to reduce, so that the value can only be the record itself.
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


class RecordsDescriptor(ListStateDescriptor):
    """Descriptor of a list of a stream's records, which may be None; kinds of rows are kept."""

    takes_none = True


def own_state(
    backend: KeyedStateBackend,
    descriptor: StateDescriptor,
    scope: EntryScope,
    operator_name: str,
) -> Any:
    """Return the handle of a state that belongs to the operator and not to its function.

    StateIncompatibleError names the operator, as the program cannot rename the state.
    """
    try:
        return backend.get_state(descriptor, scope)
    except StateIncompatibleError as error:
        raise _lost(operator_name, error.reason) from None


def refuse_other_layout(backend: KeyedStateBackend, name: str, operator_name: str) -> None:
    """Raise StateIncompatibleError if records were stored in a state `name` that the operator no longer has."""
    if backend.has_unclaimed(name):
        raise _lost(
            operator_name, f"state '{name}' was stored, but records are kept in other states now"
        )


def _lost(operator_name: str, reason: str) -> StateIncompatibleError:
    return StateIncompatibleError(
        f"operator '{operator_name}' cannot restore its state: {reason}",
        "give the stream its former type, or the operator another uid() to start with empty state",
    )


def row_around(record: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    """Return a row of `values`, which include `record`, with the kind of `record`, as inner kinds are not kept."""
    row = row_of(names, values)
    if type(record) is Row:
        row._kind = record._kind  # pyright: ignore[reportPrivateUsage]
    return row


def record_in(row: Row, index: int) -> Any:
    """Return the record in a row of `row_around`, with its kind."""
    record = row[index]
    if type(record) is Row:
        record._kind = row._kind  # pyright: ignore[reportPrivateUsage]
    return record
