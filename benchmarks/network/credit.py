"""How long does a credit take there and back?

A channel with one segment of its own and none to share: the sender may send again only when it has heard that the
batch was taken. From taking a batch to the arrival of the next one, the sender having it ready: a credit one way and
a batch of one row the other. Beside it: the same with two blocking sockets and no protocol.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.network.endpoints import RowMaker
from benchmarks.network.peer import Peers

OPTIONS = {
    "taskmanager.network.memory.buffers-per-channel": "1",
    "taskmanager.network.memory.floating-buffers-per-gate": "0",
}
ROW_BYTES = 16
RAW_COUNT = 5000


def measure_credit(carrier: str, seconds: float, advance: Callable[[str], None]) -> dict[str, Any]:
    """Round trips of credits and of raw sockets, in microseconds."""
    rows = RowMaker(ROW_BYTES, 1)
    with Peers(carrier, OPTIONS) as peers:
        answer = peers.pump("credit", rows, ROW_BYTES, 1, 0, warm_up_s=0.5, seconds=seconds)
        advance("credit")
        raw = peers.raw_round_trips(int(rows.dense_row_bytes), RAW_COUNT)
        advance("raw sockets")
    found = {key: value for key, value in answer.items() if key.startswith("credit")}
    return {"credit": {"carrier": carrier, "trips": answer["trips"], **found, **raw}}
