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
    """One lifecycle as a Mermaid state diagram; terminal states lead to the end mark."""
    lines = [f"## {title}", "", "```mermaid", "stateDiagram-v2"]
    order = list(transitions)
    for state, following in transitions.items():
        lines += [f"    {state.name} --> {to.name}" for to in sorted(following, key=order.index)]
        if not following:
            lines.append(f"    {state.name} --> [*]")
    return [*lines, "```", ""]
