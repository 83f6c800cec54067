"""What does the state of a query grow to, and what do checkpoints of it take?

    python -m benchmarks.nexmark.state [--events 1000000 10000000]

`q16` counts the different bidders and auctions of each channel and day, in all and by price: until the day is over it
keeps each pair of a channel and a bidder or an auction, which are the keys here. It runs in one process, with a
checkpoint every second, on each number of events in a process of its own, and is not ended: when it has read all of
them the state is whole, and one more checkpoint is taken, of a job at rest. Bytes per key are the difference between
the smallest and the largest run, so that what any run takes is not counted.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from benchmarks.fresh_process import in_fresh_process
from benchmarks.nexmark.files import events_directory, row_counts
from benchmarks.nexmark.program import TASK_MANAGERS, checkpoints
from benchmarks.nexmark.queries import q16
from benchmarks.nexmark.streams import EventStreams
from benchmarks.record import record_result
from headrace import StreamExecutionEnvironment
from headrace.api.client.job_client import JobClient
from headrace.core.process.process_memory import resident_memory_bytes
from headrace.functions.sink import DiscardingSink
from headrace.gateways.checkpoint_statistics import CheckpointInfo
from headrace.gateways.job_master import JobDetails
from headrace.metrics.names import NUM_RECORDS_IN, NUM_RECORDS_OUT
from headrace.testing.minicluster_executor import MiniClusterExecutor

SAMPLE_S: Final = 0.05
ASK_TIMEOUT_S: Final = 60
QUERY: Final = "q16"
COUNTED: Final = ("bidder", "auction")
Figures = dict[str, Any]


def key_count(events: Path) -> int:
    """Return how many pairs of a channel and a bidder or an auction there are."""
    bids = pq.read_table(events / "bid", columns=["channel", *COUNTED])
    return sum(bids.group_by(["channel", name]).aggregate([]).num_rows for name in COUNTED)


def has_taken(details: JobDetails, row_count: int) -> bool:
    """Whether a job of sources and windows has read so many rows, and its windows all that came of them."""
    if len(details.vertices) != 2:
        return False
    source, windows = (vertex.metrics for vertex in details.vertices)
    is_read = source.get(NUM_RECORDS_IN.name, 0) >= row_count
    return is_read and windows.get(NUM_RECORDS_IN.name, 0) == source[NUM_RECORDS_OUT.name]


def watched(client: JobClient, row_count: int) -> tuple[int, list[CheckpointInfo]]:
    """Wait until all rows are taken; return the most bytes that this process had, and the checkpoints meanwhile."""
    peak_bytes = 0
    found: dict[int, CheckpointInfo] = {}
    while True:
        details = client.get_job_details().result(ASK_TIMEOUT_S)
        if details.status.is_terminal_state():
            client.get_job_execution_result().result(ASK_TIMEOUT_S)  # raises what it failed with
        latest = details.checkpoints.latest_completed
        if latest is not None:
            found[latest.checkpoint_id] = latest
        peak_bytes = max(peak_bytes, resident_memory_bytes())
        if has_taken(details, row_count):
            return peak_bytes, list(found.values())
        time.sleep(SAMPLE_S)


def checkpoint_at_rest(client: JobClient, known_id: int) -> tuple[CheckpointInfo, float]:
    """Return a checkpoint that began after all rows were taken, and its processor seconds.

    It is the second to complete after `known_id`: the first may have begun before, and there is one at a time.
    """
    later: dict[int, CheckpointInfo] = {}
    cpu_seconds: list[float] = []
    while len(later) < 2:
        latest = client.get_job_details().result(ASK_TIMEOUT_S).checkpoints.latest_completed
        if latest is not None and latest.checkpoint_id > known_id:
            later[latest.checkpoint_id] = latest
            known_id = latest.checkpoint_id
            cpu_seconds.append(time.process_time())
        time.sleep(SAMPLE_S)
    return later[known_id], cpu_seconds[1] - cpu_seconds[0]


def cancel(client: JobClient) -> None:
    """End a job."""
    client.cancel_at_once().result(ASK_TIMEOUT_S)
    while not client.get_job_status().result(ASK_TIMEOUT_S).is_terminal_state():
        time.sleep(SAMPLE_S)


def state_of_run(events: Path) -> Figures:
    """Run the query over all events; return what it took."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(TASK_MANAGERS)
    with MiniClusterExecutor(slot_count=TASK_MANAGERS), checkpoints(env):
        q16(EventStreams(env, events, are_endless=True)).sink_to(DiscardingSink())
        cpu_started = time.process_time()
        client = env.execute_async(f"state of {QUERY}")
        peak_bytes, infos = watched(client, row_counts(events)["bid"])
        cpu_seconds = time.process_time() - cpu_started
        known_id = max((info.checkpoint_id for info in infos), default=0)
        whole, checkpoint_cpu_seconds = checkpoint_at_rest(client, known_id)
        resting_bytes = resident_memory_bytes()
        cancel(client)
    return {
        "keys": key_count(events),
        "peak_mb": round(peak_bytes / 1e6),
        "resting_mb": round(resting_bytes / 1e6),
        "cpu_seconds": round(cpu_seconds, 2),
        "checkpoint_mb": round(whole.size_bytes / 1e6, 2),
        "checkpoint_cpu_seconds": round(checkpoint_cpu_seconds, 2),
        "checkpoint_ms": whole.duration_ms,
        "pause_ms": whole.slowest.sync_ms,
        "write_ms": whole.slowest.async_ms,
        "checkpoints_before": len(infos),
        "longest_before_ms": max((info.duration_ms for info in infos), default=0),
        "longest_pause_before_ms": max((info.slowest.sync_ms for info in infos), default=0),
    }


def summary(events: Sequence[int], runs: Sequence[Figures]) -> Figures:
    """Return the figures of all runs, upward, and the bytes of a key between the first and the last."""
    first, last = runs[0], runs[-1]

    def bytes_per_key(name: str) -> float:
        return round((last[name] - first[name]) * 1e6 / (last["keys"] - first["keys"]), 1)

    return {
        "query": QUERY,
        "host": "one process",
        "state": [{"events": count} | run for count, run in zip(events, runs, strict=True)],
        "peak_bytes_per_key": bytes_per_key("peak_mb"),
        "resting_bytes_per_key": bytes_per_key("resting_mb"),
        "checkpoint_bytes_per_key": bytes_per_key("checkpoint_mb"),
    }


def main() -> None:
    """Measure and keep."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark.state", description=str(__doc__).partition("\n")[0]
    )
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--root", type=Path, default=Path(tempfile.gettempdir()) / "nexmark")
    arguments = parser.parse_args()
    counts = sorted(set(arguments.events))
    if len(counts) < 2:
        parser.error("bytes per key are a difference: give two numbers of events")
    directories = [events_directory(arguments.root, count) for count in counts]
    runs = [in_fresh_process(state_of_run, events) for events in directories]
    record_result("nexmark", summary(counts, runs))


if __name__ == "__main__":
    main()
