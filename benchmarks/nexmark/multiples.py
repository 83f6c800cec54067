"""Which figures may be told as multiples: those of alternating turns, of enough events, with checkpoints on both sides.

A run that is over before it has taken ten checkpoints tells what a stream costs without them; one of few events tells
how long processes take to start; one turn tells what else the machine did.
"""

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.nexmark.peers.registry import HEADRACE, PEERS

PROTOCOL: Final = 3
"""Changes where figures are taken in another way, so that older ones are told no more: 3 says when turns began."""
LEAST_TURNS: Final = 3
LEAST_EVENTS: Final = 1_000_000
LEAST_CHECKPOINTS: Final = 10
Figures = Mapping[str, Any]


def doubts(figures: Figures, name: str) -> list[str]:
    """Return in a few words why a peer's rate of a query is compared with no other; none where it may be."""
    found: list[str] = []
    turns, events = figures.get(f"{name}_turns", 0), figures.get(f"{name}_events", 0)
    if turns < LEAST_TURNS:
        found.append(f"{turns} turn" if turns == 1 else f"{turns} turns")
    if events < LEAST_EVENTS:
        found.append(f"{events:,} events")
    if PEERS[name].takes_checkpoints:
        taken = figures.get(f"{name}_checkpoints")
        if taken is None:
            found.append("checkpoints not counted")
        elif taken < LEAST_CHECKPOINTS:
            found.append(f"only {taken} cp")
    if not in_turns(figures, name):
        found.append("in other turns")
    return found


def in_turns(figures: Figures, name: str) -> bool:
    """Return whether each turn of a peer began behind Headrace's of the same number and before its next one."""
    if name == HEADRACE:
        return True
    ours, theirs = (figures.get(f"{one}_begun", []) for one in (HEADRACE, name))
    if len(ours) != len(theirs):
        return False
    alternating = [moment for pair in zip(ours, theirs, strict=True) for moment in pair]
    return alternating == sorted(alternating)


def multiple(figures: Figures, name: str) -> float | None:
    """Return how many times a peer's rate Headrace takes, or None where one of the two is in doubt."""
    if name == HEADRACE or doubts(figures, name) or doubts(figures, HEADRACE):
        return None
    return figures.get(f"{name}_ratio")
