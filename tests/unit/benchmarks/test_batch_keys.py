"""The benchmark of BATCH mode's memory keeps no figures of processes that lay in swap."""

import sys
from typing import Any

import pytest

from benchmarks import batch_keys


def kept_figures(monkeypatch: pytest.MonkeyPatch, swapped: int) -> list[dict[str, Any]]:
    """Run the benchmark with a made-up job beside processes of which `swapped` bytes lie in swap."""
    kept: list[dict[str, Any]] = []

    class Watched:
        def __init__(self) -> None:
            self.largest = {"worker": 1, "jvm": 1}
            self.swapped = swapped

        def close(self) -> None:
            """Nothing is sampled."""

    def run(records: int, keys: int, parallelism: int, *, in_columns: bool) -> tuple[int, int]:
        return keys, records

    def record(name: str, figures: dict[str, Any]) -> None:
        kept.append(figures)

    monkeypatch.setattr(batch_keys, "Watch", Watched)
    monkeypatch.setattr(batch_keys, "run", run)
    monkeypatch.setattr(batch_keys, "record_result", record)
    monkeypatch.setattr(batch_keys, "SAMPLE_KEYS", 10)
    monkeypatch.setattr(sys, "argv", ["batch_keys"])
    batch_keys.main()
    return kept


def test_figures_are_kept_where_nothing_lay_in_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    (figures,) = kept_figures(monkeypatch, 0)
    assert figures["swapped_bytes_max"] == 0


def test_processes_that_lay_in_swap_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="lay in swap"):
        kept_figures(monkeypatch, 4096)
