"""Rows per second and latency of a keyed edge, by number of channels, row size and buffer timeout.

One producing task with one keyed edge (records are split by key group, which is part of the cost; the keys are hashed
beforehand, as that is the work of the operator before) and, in the other process, one gate with all the channels.
Throughput: rows taken within a window, the pipe being full; how old they were then is `loaded_ms`. Latency: batches
of 16 rows, 200 a second, from before `emit` to after `poll`. With a timeout of -1 rows wait for a full batch, however
long that takes, so that at a low rate there is nothing to measure.
Beside it, of the same rows: what raw blocking sockets move, unsplit, as one stream, on the cores that the exchange has
and on all there are, of which the better is the rival (`raw_mb_per_s`); and what the splitting takes of a processor, by
itself (`split_cpu_s_per_mrow`): what the record writer does of it, which finds the channel of each row, gathers batches
until they are enough for each channel, and copies the rows of a channel together.
Of the processor time of both processes (`cpu_s_per_mrow`), what the two tasks' own threads take is kept too
(`producing_task_…`, `consuming_task_…`); the rest is the network threads'.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.network.endpoints import RowMaker, key_group_selector
from benchmarks.network.peer import Peers
from headrace.network.writers.partition_buffer import PartitionBuffer

CHANNELS = (1, 16, 128, 512)
ROW_BYTES = (16, 200, 10_000)
TIMEOUTS_MS = (0, 1, 10, 100, -1)
LATENCY_ROWS, LATENCY_PER_SECOND = 16, 200
RAW_PIECE_BYTES = 128 << 10
SPLIT_SECONDS, SPLIT_BATCHES = 0.3, 8


@dataclass(frozen=True)
class Matrix:
    """What part of it to measure, and how long each cell takes."""

    channels: tuple[int, ...] = CHANNELS
    row_bytes: tuple[int, ...] = ROW_BYTES
    timeouts_ms: tuple[int, ...] = TIMEOUTS_MS
    seconds: float = 1.2
    with_latency: bool = True

    @property
    def step_count(self) -> int:
        """How many measurements that makes."""
        cells = len(self.channels) * len(self.row_bytes) * len(self.timeouts_ms)
        return cells + 2 * len(self.row_bytes) * len(self.channels)

    def measure(self, carrier: str, advance: Callable[[str], None]) -> dict[str, Any]:
        """Measure it all; `advance` is called after each measurement."""
        cells: list[dict[str, Any]] = []
        ceilings: list[dict[str, Any]] = []
        splits: list[dict[str, Any]] = []
        with Peers(carrier) as peers:
            for row_bytes in self.row_bytes:
                rows, raw = RowMaker(row_bytes), list[dict[str, float]]()
                for channels in self.channels:
                    for cell in self._cells(peers, rows, row_bytes, channels):
                        cells.append(cell)
                        advance(f"{channels} channels, {row_bytes} B, {cell['timeout_ms']} ms")
                    splits.append(measure_split(rows, row_bytes, channels))
                    advance("splitting alone")
                    # Between our cells, so that what else the machine does falls on both.
                    raw.append(raw_mb_per_s(peers, rows, self.seconds))
                    advance("raw sockets")
                ceilings.append({"carrier": carrier, "row_bytes": row_bytes, **ceiling_of(raw)})
        return {"matrix": cells, "ceilings": ceilings, "splits": splits}

    def _cells(
        self, peers: Peers, rows: RowMaker, row_bytes: int, channels: int
    ) -> Iterator[dict[str, Any]]:
        for timeout_ms in self.timeouts_ms:
            cell = {
                "carrier": peers.carrier,
                "channels": channels,
                "row_bytes": row_bytes,
                "timeout_ms": timeout_ms,
            }
            cell |= measure_throughput(peers, rows, cell, self.seconds)
            if timeout_ms >= 0 and self.with_latency:
                cell |= measure_latency(peers, cell, self.seconds)
            yield cell


def measure_throughput(
    peers: Peers, rows: RowMaker, cell: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Rows per second, with what they take unsplit as bytes, and processor time of both processes."""
    row_bytes, channels, timeout_ms = cell["row_bytes"], cell["channels"], cell["timeout_ms"]
    warm_up_s = 0.3 + channels / 2000
    answer = peers.pump(
        "throughput", rows, row_bytes, channels, timeout_ms, warm_up_s=warm_up_s, seconds=seconds
    )
    per_second = answer["rows"] / seconds
    rows_taken = max(1, answer["rows"])
    found = {
        "mrows_per_s": round(per_second / 1e6, 4),
        "mb_per_s": round(per_second * rows.dense_row_bytes / 1e6, 1),
        "rows_per_batch": round(answer["rows"] / max(1, answer["batches"]), 1),
        "cpu_s_per_mrow": round(
            answer["cpu"] / rows_taken * 1e6 + answer["producer_cpu_s_per_mrow"], 4
        ),
        "producing_task_cpu_s_per_mrow": round(answer["producing_task_cpu_s_per_mrow"], 4),
        "consuming_task_cpu_s_per_mrow": round(answer["task_cpu"] / rows_taken * 1e6, 4),
    }
    return found | {key: value for key, value in answer.items() if key.startswith("loaded")}


def raw_mb_per_s(peers: Peers, rows: RowMaker, seconds: float) -> dict[str, float]:
    """What raw sockets move on the cores of the exchange, and on all."""
    messages = rows.messages()
    return {
        name: peers.raw_bytes_per_s(messages, seconds / 4, RAW_PIECE_BYTES, keeps_cores=keeps) / 1e6
        for name, keeps in (("raw_on_own_cores", True), ("raw_on_all_cores", False))
    }


def ceiling_of(turns: Sequence[dict[str, float]]) -> dict[str, float]:
    """The best turn of each, and of both."""
    best = {f"{name}_mb_per_s": round(max(turn[name] for turn in turns), 1) for name in turns[0]}
    return {"raw_mb_per_s": max(best.values()), **best}


def measure_latency(peers: Peers, cell: dict[str, Any], seconds: float) -> dict[str, Any]:
    """How long rows take at a low rate."""
    rows = RowMaker(cell["row_bytes"], LATENCY_ROWS)
    answer = peers.pump(
        "latency",
        rows,
        cell["row_bytes"],
        cell["channels"],
        cell["timeout_ms"],
        warm_up_s=0.3,
        seconds=seconds,
        batches_per_s=LATENCY_PER_SECOND,
    )
    return {key: value for key, value in answer.items() if key.startswith("latency")}


def measure_split(rows: RowMaker, row_bytes: int, channels: int) -> dict[str, Any]:
    """What the splitting takes of a processor, as the record writer does it. Nothing is split for one channel."""
    selector, unsplit = key_group_selector(channels), PartitionBuffer(channels)
    count, spent_s = 0, 0.0
    end = time.perf_counter() + SPLIT_SECONDS
    while channels > 1 and (time.perf_counter() < end or not count):
        batches = [rows.batch() for _ in range(SPLIT_BATCHES)]
        began = time.thread_time()
        for batch in batches:
            unsplit.append(batch, selector.channels_of(batch))
            if unsplit.is_enough:
                count += sum(
                    share.rows.num_rows for share in unsplit.split() if share.rows is not None
                )
        spent_s += time.thread_time() - began
    spent_s_per_mrow = round(spent_s / max(1, count) * 1e6, 4)
    return {"row_bytes": row_bytes, "channels": channels, "split_cpu_s_per_mrow": spent_s_per_mrow}
