"""OperatorSpec: what a graph node carries, a name for the operator and the parts it is made of.

OperatorTypes: the types at the borders of one operator, shipped beside its function.

How an operator is found by what people call it: the same in a running job and in a snapshot.
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
        """Functions that the user wrote, for error messages that name their file and line."""
        return ()

    def coordinator(self) -> tuple[str, bytes] | None:
        """Name and payload of the coordinator that this operator needs in the JobMaster, or None."""
        return None

    def committer(self) -> tuple[str, bytes] | None:
        """Name and payload of the Committer that makes this operator's prepared output visible, or None."""
        return None


@dataclass(frozen=True)
class OperatorTypes:
    """Types of the inputs (by input number), of the output and of side outputs (by tag id)."""

    inputs: tuple[BatchType, ...]
    output: BatchType
    side_outputs: Mapping[str, BatchType] = field(default_factory=dict[str, BatchType])


class NamedOperator(Protocol):
    """What an operator may be called by."""

    @property
    def uid(self) -> str | None:
        """What its program calls it, None where that says nothing."""
        ...

    @property
    def operator_id(self) -> OperatorId:
        """Its id, people write it in hexadecimal digits."""
        ...

    @property
    def name(self) -> str:
        """What is shown; others may have the same."""
        ...


OperatorT = TypeVar("OperatorT", bound=NamedOperator)


def operators_called(operators: Sequence[OperatorT], named: str) -> list[OperatorT]:
    """Return those of this uid, else of this id, else of this name; more than one where they cannot be told apart."""
    return (
        [one for one in operators if one.uid == named]
        or [one for one in operators if one.operator_id.hex() == named]
        or [one for one in operators if one.name == named]
    )
