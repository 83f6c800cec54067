"""Remembers what no plan was made of yet: a program that ends with a sink left over has forgotten `execute()`.

So has one that says operators and never makes a plan at all. One per process, because `headrace run` looks when the
program's environments may be gone already; in a plain Python process it is logged at its exit.
"""

import atexit
import logging
import sys
from typing import ClassVar, Final

from headrace.api.executors import active_executor
from headrace.api.transformations import OperatorTransformation
from headrace.graph.stream_graph import NodeRole

_LOG: Final = logging.getLogger(__name__)


class _LeftOver:
    sink: ClassVar[OperatorTransformation | None] = None
    operator: ClassVar[OperatorTransformation | None] = None
    has_plan: ClassVar[bool] = False


def program_begins() -> None:
    """Begin anew: what was said so far belongs to another program."""
    _LeftOver.sink = _LeftOver.operator = None
    _LeftOver.has_plan = False


def operator_added(operator: OperatorTransformation) -> None:
    """An operator waits for its job."""
    if operator.role is NodeRole.SINK:
        _LeftOver.sink = operator
    else:
        _LeftOver.operator = operator
    if active_executor() is None:
        # Nobody else looks at the program's end, as `headrace run` does.
        atexit.unregister(_log_unexecuted)
        atexit.register(_log_unexecuted)


def plan_made() -> None:
    """What was said so far was run, or looked at."""
    _LeftOver.sink = _LeftOver.operator = None
    _LeftOver.has_plan = True


def unexecuted_operator() -> OperatorTransformation | None:
    """Return the last sink since the last plan, if any; in a program without any plan its last operator."""
    if _LeftOver.sink is not None:
        return _LeftOver.sink
    return None if _LeftOver.has_plan else _LeftOver.operator


def unexecuted_text(operator: OperatorTransformation) -> str:
    """Say what was forgotten, and where."""
    return f"the program ended without running '{operator.name}' ({operator.location}): call env.execute()"


def _log_unexecuted() -> None:
    operator = unexecuted_operator()
    # A program that ended by an exception did not get to it.
    if operator is not None and getattr(sys, "last_value", None) is None:
        _LOG.warning("%s", unexecuted_text(operator))
