"""The benchmark of the network: a page from recorded figures, whole or in part."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.network.bad_peer import harms
from benchmarks.network.report import (
    HARM_TEXTS,
    disk_reasons,
    prepare,
    read_lines,
    write_page,
)

SAMPLE = Path(__file__).parent / "network_sample.jsonl"


def page(lines: list[dict[str, Any]]) -> str:
    return write_page(prepare(lines, "unix"), [])


def test_a_whole_run_gives_every_chapter() -> None:
    text = page(read_lines(SAMPLE))
    chapters = [line for line in text.splitlines() if line.startswith("## ")]
    assert chapters == [
        "## Rows per second",
        "## Latency",
        "## Disk",
        "## Encryption and compression",
        "## Slow consumers",
        "## What to compare with",
    ]
    assert "{" not in text


SECTIONS = [
    "matrix",
    "ceilings",
    "splits",
    "credit",
    "disk",
    "tls",
    "compression",
    "stalled",
    "mischief",
]


@pytest.mark.parametrize("missing", [*SECTIONS, "debloating", "load_average_before"])
def test_what_was_not_measured_is_left_out(missing: str) -> None:
    (line,) = read_lines(SAMPLE)
    del line["figures"][missing]
    assert "## What to compare with" in page([line])


def test_one_section_alone_is_a_page_too() -> None:
    (line,) = read_lines(SAMPLE)
    line["figures"] = {"tls": line["figures"]["tls"]}
    chapters = [row for row in page([line]).splitlines() if row.startswith("## ")]
    assert chapters == ["## Encryption and compression", "## What to compare with"]


def test_what_neighbours_keep_is_told_for_both_loads() -> None:
    (line,) = read_lines(SAMPLE)
    text = page([line])
    assert (
        "| a channel that is not read | saturated | 94.6 % | 90.6 to 96.1 % | 94.6 % | 0 % | 0 % |"
        in text
    )
    assert "| garbage | throttled | 100.0 % | 96.0 to 101.5 % | 100.0 % | 0 % | 6 % |" in text


def test_every_bad_peer_of_the_table_is_explained_below_it() -> None:
    (line,) = read_lines(SAMPLE)
    text = page([line])
    measured = {row["harm"] for row in line["figures"]["mischief"]}
    assert measured and all(f"*{harm}*: " in text for harm in measured)
    # `burning` is what the others are compared with.
    assert set(HARM_TEXTS) == set(harms()) - {"burning"}


def test_a_busy_machine_is_told() -> None:
    (line,) = read_lines(SAMPLE)
    line["figures"]["load_average_before"] = 7.0
    assert "The machine was busy (load 7.0)" in page([line])
    line["figures"]["load_average_before"] = 0.1
    assert "The machine was busy" not in page([line])


def test_no_file_is_no_runs(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "none.jsonl") == []
    (tmp_path / "one.jsonl").write_text(json.dumps({"figures": {}}) + "\n\n")
    assert read_lines(tmp_path / "one.jsonl") == [{"figures": {}}]


@pytest.mark.parametrize("share", [49.9, 50.0])
def test_a_stored_result_below_half_of_a_plain_file_has_its_reason(share: float) -> None:
    row = {
        "kind": "sort-merge",
        "channels": 512,
        "write_synced_share_percent": 60.0,
        "read_share_percent": share,
        "write_cpu_s_per_gb": 3.4,
        "raw_write_cpu_s_per_gb": 0.6,
        "read_cpu_s_per_gb": 1.7,
        "raw_read_cpu_s_per_gb": 0.1,
    }
    text = disk_reasons([row])
    assert ("512 channels, read: 1.70 s of processor time per GB" in text) is (share < 50)
    assert "write:" not in text
