"""Remembers the last sink that no plan was made of yet: a program that ends with one has forgotten `execute()`.

One per process, because `headrace run` looks when the program's environments may be gone already.
"""

from headrace.api.transformations import OperatorTransformation


class _LastSink:
    operator: OperatorTransformation | None = None


def sink_added(operator: OperatorTransformation) -> None:
    """A sink waits for its job."""
    _LastSink.operator = operator


def plan_made() -> None:
    """What was said so far was run, or looked at."""
    _LastSink.operator = None


def unexecuted_sink() -> OperatorTransformation | None:
    """Return the last sink since the last plan, if any."""
    return _LastSink.operator
