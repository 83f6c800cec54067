"""How an operator is found by what people call it: the same in a running job and in a snapshot."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from headrace.core.ids import OperatorId


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
