"""lifecycles.md: the states of jobs, executions, endpoints and workers, drawn from their tables."""

import enum
from collections.abc import Mapping

from headrace.core.lifecycle import EXECUTION_TRANSITIONS, JOB_TRANSITIONS
from headrace.rpc.server import ENDPOINT_TRANSITIONS


def lifecycles_page() -> str:
    """One drawing per table."""
    return "\n".join(
        [
            "# Lifecycles",
            "",
            *state_drawing("A job (JobStatus)", JOB_TRANSITIONS),
            *state_drawing("An execution (ExecutionState)", EXECUTION_TRANSITIONS),
            *state_drawing("An endpoint (EndpointState)", ENDPOINT_TRANSITIONS),
        ]
    )


def state_drawing(title: str, transitions: Mapping[enum.Enum, frozenset[enum.Enum]]) -> list[str]:
    """One lifecycle as a picture in characters: an arrow from each state to those that may follow it."""
    order = list(transitions)
    width = max(len(state.name) for state in order)
    lines = [f"## {title}", "", "```"]
    for state, following in transitions.items():
        names = " | ".join(to.name for to in sorted(following, key=order.index))
        arrow = f"──► {names}" if following else "──■ end"
        lines.append(f"{state.name:<{width}} {arrow}")
    return [*lines, "```", ""]
