"""Does a slow consumer harm others, and how much waits in front of it?

Stalled channel: three edges between the same two processes, on one connection, are read beside a fourth that is full
and never read, and without it (see neighbours.py for how that is compared; two consumers of one keyed edge would be
another question: their producer waits for the slower one, as in Flink).
Debloating: a keyed edge of 16 channels whose consumer takes 8 MB/s; how old the rows are when they are taken.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.network.endpoints import RowMaker
from benchmarks.network.neighbours import ROW_BYTES, compare, loads_of, rate_of_turn
from benchmarks.network.peer import Peers

SLOW_BYTES_PER_S, SLOW_CHANNELS = 8_000_000, 16
DEBLOAT_OPTIONS = {
    "taskmanager.network.memory.buffer-debloat.enabled": "true",
    "taskmanager.network.memory.buffer-debloat.target": "200 ms",
    "taskmanager.network.memory.buffer-debloat.period": "50 ms",
}


def measure_stalled(carrier: str, repeats: int, advance: Callable[[str], None]) -> dict[str, Any]:
    """The neighbours' rate beside a stalled channel, as a share of that without."""
    rows = RowMaker(ROW_BYTES)
    found: list[dict[str, Any]] = []
    with Peers(carrier) as peers:
        for load in loads_of(peers, rows):
            alone = partial(rate_of_turn, peers, rows, load)
            beside = partial(rate_of_turn, peers, rows, load, has_stalled=True)
            figures = compare(alone, beside, None, repeats)
            found.append({"carrier": carrier, "load": load.name, **figures})
            advance(f"beside a stalled channel, {load.name}")
    return {"stalled": found}


def measure_debloating(
    carrier: str, seconds: float, advance: Callable[[str], None]
) -> dict[str, Any]:
    """Time in flight with and without."""
    rows = RowMaker(ROW_BYTES, 1024)
    found: list[dict[str, Any]] = []
    for is_on in (False, True):
        with Peers(carrier, DEBLOAT_OPTIONS if is_on else {}) as peers:
            answer = peers.pump(
                "slow",
                rows,
                ROW_BYTES,
                SLOW_CHANNELS,
                100,
                warm_up_s=seconds / 2,
                seconds=seconds / 2,
                bytes_per_s=SLOW_BYTES_PER_S,
            )
        ages = {key: value for key, value in answer.items() if key.startswith("in_flight")}
        found.append({"carrier": carrier, "debloating": is_on, **ages})
        advance("with debloating" if is_on else "without debloating")
    return {"debloating": found}
