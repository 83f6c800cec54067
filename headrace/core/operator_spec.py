"""OperatorSpec: what a graph node carries, a name for the operator and the parts it is made of."""

from typing import ClassVar


class OperatorSpec:
    """Base of the frozen dataclasses in `headrace.functions.specs`.

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
