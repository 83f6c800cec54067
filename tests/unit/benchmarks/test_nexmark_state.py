"""State of a Nexmark query: when it is measured, what is kept of it, and what the page says."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.nexmark.files import events_directory
from benchmarks.nexmark.report import newest, newest_state, state_text
from benchmarks.nexmark.state import has_taken, key_count, state_of_run, summary
from headrace.core.ids import JobId, JobVertexId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.job_master import JobDetails, SubtaskDetails, VertexDetails

RUN: dict[str, Any] = {
    "keys": 1_000,
    "peak_mb": 300,
    "resting_mb": 200,
    "checkpoint_mb": 1.5,
    "checkpoint_ms": 70,
    "pause_ms": 1,
    "longest_before_ms": 90,
}
LARGER = RUN | {"keys": 101_000, "peak_mb": 400, "resting_mb": 250, "checkpoint_mb": 2.5}


def details(read: int, sent: int, received: int) -> JobDetails:
    counts = ({"numRecordsIn": read, "numRecordsOut": sent}, {"numRecordsIn": received})
    vertices = [
        VertexDetails(
            JobVertexId(bytes([index] * 16)),
            "vertex",
            1,
            (SubtaskDetails(0, 0, ExecutionState.RUNNING, None, dict[str, float](metrics)),),
        )
        for index, metrics in enumerate(counts)
    ]
    return JobDetails(JobId(bytes(16)), "job", JobStatus.RUNNING, {}, tuple(vertices))


@pytest.mark.parametrize(
    ("read", "sent", "received", "is_all"),
    [(100, 40, 40, True), (99, 40, 40, False), (100, 40, 39, False)],
)
def test_all_is_taken_when_all_is_read_and_what_came_of_it_has_arrived(
    read: int, sent: int, received: int, is_all: bool
) -> None:
    assert has_taken(details(read, sent, received), row_count=100) is is_all


def test_a_key_takes_what_the_larger_run_takes_more() -> None:
    figures = summary([10, 20], [RUN, LARGER])
    assert figures["peak_bytes_per_key"] == 1000.0
    assert figures["resting_bytes_per_key"] == 500.0
    assert figures["checkpoint_bytes_per_key"] == 10.0
    assert [run["events"] for run in figures["state"]] == [10, 20]


def test_a_checkpoint_of_the_whole_state_is_taken_when_all_is_read(tmp_path: Path) -> None:
    events = events_directory(tmp_path, 5_000)
    figures = state_of_run(events)
    bids = pq.read_table(events / "bid", columns=["channel", "bidder", "auction"])
    rows = bids.to_pylist()
    bidders = {(row["channel"], row["bidder"]) for row in rows}
    auctions = {(row["channel"], row["auction"]) for row in rows}
    assert figures["keys"] == key_count(events) == len(bidders) + len(auctions)
    assert figures["checkpoint_mb"] > 0
    assert figures["peak_mb"] > 0


def test_the_page_says_what_the_newest_state_grew_to_and_takes_no_rates_from_it(
    tmp_path: Path,
) -> None:
    lines = [
        {
            "load_average_before": load,
            "load_average": 9.5,
            "figures": summary([10, 20], [RUN, LARGER]),
        }
        for load in (7.5, 0.25)
    ]
    (tmp_path / "nexmark.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = newest_state(tmp_path)
    assert found is not None
    text = state_text(found)
    assert "| 20 | 101,000 | 400 | 250 | 2.5 | 70 | 1 | 90 |" in text
    assert "1,000 bytes of memory at most" in text
    assert "load average before it all was 0.25, behind it 9.5" in text
    assert newest(tmp_path) == {}
