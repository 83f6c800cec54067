"""Errors of reading and editing a snapshot's tables: unknown, readable by RocksDB only, or wrongly edited.

StateProcessorError
+- UnknownStateError             no state has this name, or several have
+- NativeStateError              the state is stored in RocksDB's own files
+- InFlightRecordsError          records were in flight between tasks, where an edit cannot change them
+- StateSchemaError              rows do not have the types that a state is stored with
+- EditRefusedError              no job could have written the result of an edit
+- JsonValueError                a JSON value is not of a state's type
+- PickledKeysError              keys are stored as pickles, and the caller has not allowed loading them
"""

from collections.abc import Sequence
from typing import Any

from headrace.core.errors import ErrorDomain, HeadraceError, short_repr


class StateProcessorError(HeadraceError):
    """Base of errors of a query of stored or live state, or of an edit of a snapshot."""

    domain, recoverable = ErrorDomain.USER, False


class UnknownStateError(StateProcessorError):
    """A snapshot or running job has no object of the requested name, or several.

    `known`: the names that exist.
    """

    def __init__(self, problem: str, known: Sequence[str]) -> None:
        choices = ", ".join(known) or "none"
        super().__init__(
            f"{problem}: choose from {choices}" if known else f"{problem}: there is none"
        )
        self.known = tuple(known)


class NativeStateError(StateProcessorError):
    """The state is stored in RocksDB's own files, which other programs cannot read as rows."""

    def __init__(self, operator: str) -> None:
        super().__init__(
            f"take a canonical savepoint and use that: operator {operator} keeps its state in RocksDB's own files, "
            "which only RocksDB reads, as with native savepoints and checkpoints with "
            "execution.checkpointing.incremental"
        )
        self.operator = operator


class InFlightRecordsError(StateProcessorError):
    """A snapshot contains records in flight between tasks, which an edit cannot change."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"take a savepoint and edit that: {uri} is unaligned and contains records in flight, which an edit of "
            f"state cannot change"
        )
        self.uri = uri


class StateSchemaError(StateProcessorError):
    """Rows are not of the types that a state is stored with. `differences`: one sentence per column or field."""

    def __init__(self, state: str, differences: Sequence[str]) -> None:
        super().__init__(f"{state} does not accept these rows, as {'; '.join(differences)}")
        self.state = state
        self.differences = tuple(differences)


class EditRefusedError(StateProcessorError):
    """An edit would create a snapshot that no job could have written. `row`: the first wrong row, by column name."""

    def __init__(self, state: str, row: dict[str, Any] | str, reason: str) -> None:
        self.row_text = row if isinstance(row, str) else short_repr(row)
        super().__init__(f"{state}: row {self.row_text} {reason}")
        self.state = state
        self.reason = reason


class JsonValueError(StateProcessorError):
    """A JSON value is not of the type that a state is stored with. `what`: the value's role."""

    def __init__(self, what: str, wanted: str, given: str) -> None:
        super().__init__(f"{what} must be {wanted}: {given} is not")
        self.what = what


class PickledKeysError(StateProcessorError):
    """An edit needs keys that are stored as pickles, and loading them was not allowed."""

    def __init__(self, state: str) -> None:
        super().__init__(
            f"{state} has keys of undeclared type, stored as pickles: an edit must load them, which runs code of "
            f"whoever wrote them; set allow_pickles=True if you trust the writer"
        )
        self.state = state
