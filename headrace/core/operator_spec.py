"""OperatorSpec and OperatorTypes: the contents of a graph node, from which a worker makes the operator.

An OperatorSpec names the operator and holds its parts; OperatorTypes holds the types of its inputs and outputs and is
shipped with it. `operators_called` finds operators by uid, id or name, in a running job as in a snapshot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeVar

from headrace.core.ids import OperatorId
from headrace.core.record_batch import BatchType


class OperatorSpec:
    """Base of the frozen dataclasses in `headrace.functions.specs.operator_specs`.

    The graph never looks inside; `operators/registry` turns `kind` into an operator on the worker.
    """

    kind: ClassVar[str]
    default_name: ClassVar[str]

    def user_functions(self) -> tuple[object, ...]:
        """Return the functions that the user wrote, for error messages that name their file and line."""
        return ()

    def coordinator(self) -> tuple[str, bytes] | None:
        """Return name and payload of the coordinator that this operator needs in the JobMaster, or None."""
        return None

    def committer(self) -> tuple[str, bytes] | None:
        """Return name and payload of the Committer that makes this operator's prepared output visible, or None."""
        return None


@dataclass(frozen=True)
class OperatorTypes:
    """Types of the inputs (by input number), of the output and of side outputs (by tag id)."""

    inputs: tuple[BatchType, ...]
    output: BatchType
    side_outputs: Mapping[str, BatchType] = field(default_factory=dict[str, BatchType])


class NamedOperator(Protocol):
    """Operator that can be addressed by its uid, id or name."""

    @property
    def uid(self) -> str | None:
        """Return the uid that the program gives it, or None if it gives none."""
        ...

    @property
    def operator_id(self) -> OperatorId:
        """Return the operator's id; people write it as hexadecimal digits."""
        ...

    @property
    def name(self) -> str:
        """Return the displayed name, which need not be unique."""
        ...


OperatorT = TypeVar("OperatorT", bound=NamedOperator)


def operators_called(operators: Sequence[OperatorT], named: str) -> list[OperatorT]:
    """Return the operators with this uid, else with this id, else with this name; several if the name is ambiguous."""
    return (
        [one for one in operators if one.uid == named]
        or [one for one in operators if one.operator_id.hex() == named]
        or [one for one in operators if one.name == named]
    )
