"""Does a slow consumer harm others, and how much waits in front of it?

Stalled channel: three edges between the same two processes, on one connection, are read as fast as they come; their
rate beside a fourth that is full and never read is compared with their rate without it, turn by turn (two consumers of
one keyed edge would be another question: their producer waits for the slower one, as in Flink).
Debloating: a keyed edge of 16 channels whose consumer takes 8 MB/s; how old the rows are when they are taken.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.network.endpoints import Feeder, RowMaker, open_writer, wait_for
from benchmarks.network.figures import paired_share_percent
from benchmarks.network.peer import Peers

ROW_BYTES = 200
NEIGHBOURS = 3
SLOW_BYTES_PER_S, SLOW_CHANNELS = 8_000_000, 16
DEBLOAT_OPTIONS = {
    "taskmanager.network.memory.buffer-debloat.enabled": "true",
    "taskmanager.network.memory.buffer-debloat.target": "200 ms",
    "taskmanager.network.memory.buffer-debloat.period": "50 ms",
}


def measure_stalled(
    carrier: str, seconds: float, repeats: int, advance: Callable[[str], None]
) -> dict[str, Any]:
    """The neighbours' rate with and without a stalled channel."""
    rows = RowMaker(ROW_BYTES)
    rates: dict[bool, list[float]] = {False: [], True: []}
    with Peers(carrier) as peers:
        neighbours_mrows_per_s(
            peers, rows, False, seconds
        )  # Warms up: the first is always the slowest.
        for turn in range(repeats):
            for is_stalled in (False, True) if turn % 2 == 0 else (True, False):
                found = neighbours_mrows_per_s(peers, rows, is_stalled, seconds)
                rates[is_stalled].append(found)
                advance("beside a stalled channel" if is_stalled else "without it")
    return {
        "stalled": {
            "carrier": carrier,
            "alone_mrows_per_s": round(max(rates[False]), 3),
            "beside_stalled_mrows_per_s": round(max(rates[True]), 3),
            "share_percent": paired_share_percent(rates[True], rates[False]),
        }
    }


def neighbours_mrows_per_s(peers: Peers, rows: RowMaker, is_stalled: bool, seconds: float) -> float:
    """What the consumer takes from all neighbours together."""
    number = peers.new_number()
    feeders = [
        Feeder(open_writer(peers.environment, number + index, 1, -1))
        for index in range(NEIGHBOURS + is_stalled)
    ]
    peers.order_reading(
        "neighbours",
        number,
        channels=1,
        row_bytes=ROW_BYTES,
        gates=NEIGHBOURS,
        stalled=is_stalled,
        warm_up_s=0.5,
        seconds=seconds,
    )
    while not peers.has_answered():
        ready = [feeder.writer for feeder in feeders if feeder.writer.is_available]
        if not ready:
            wait_for(feeders[0].writer.on_available, 0.001)
        for writer in ready:
            writer.emit(rows.batch())
    answer = peers.answer()
    for feeder in feeders:
        feeder.writer.close()
    return answer["rows"] / seconds / 1e6


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
