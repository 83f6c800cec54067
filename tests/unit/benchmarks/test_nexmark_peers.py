"""The peers of the Nexmark benchmark: turns, figures, what is compared, and the page; without any of the peers."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.nexmark.multiples import LEAST_TURNS as TURNS
from benchmarks.nexmark.multiples import PROTOCOL, doubts, multiple
from benchmarks.nexmark.peers import measure as measure_module
from benchmarks.nexmark.peers import turns
from benchmarks.nexmark.peers.compare import in_milliseconds, result_files
from benchmarks.nexmark.peers.measure import READS, Figures, peer_main, process_facts, tree_of
from benchmarks.nexmark.peers.registry import CHECKPOINT_MS, HEADRACE, PEERS, Peer
from benchmarks.nexmark.peers.turns import (
    OutOfTimeError,
    PeerFailedError,
    Plan,
    TakenTurns,
    last_line,
    measure,
    reason,
    summary,
)
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.report import newest, write_page

PROGRAMS = Path(turns.__file__).parent
RUN: Figures = {
    "net_runtime_ms": 500,
    "cpu_seconds": 1.0,
    "peak_mb": 300,
    "events": 2_000_000,
    "input_rows": 1_000_000,
    "versions": {"polars": "2.1.0"},
    "checkpoints": 12,
}


def line(query: str, **figures: Any) -> dict[str, Any]:
    whole = {"query": query, "host": "spark", "protocol": PROTOCOL, "events": 10_000_000} | figures
    return {"date": "2026-01-01", "machine": "2 x ?", "load_average": 0.5, "figures": whole}


def flat(
    name: str, *, ours: Figures | None = None, measurement: int = 0, **changed: Any
) -> Figures:
    """Return a peer's figures of a measurement whose turns began one behind the other."""
    place = list(PEERS).index(name)
    begun = [measurement * 10_000 + turn * 1_000 + place for turn in range(TURNS)]
    runs = [RUN | {"load_before": 0.5, "begun": at} | changed for at in begun]
    return summary(name, runs, None if ours is None else [ours])


def later(tmp_path: Path, seconds: float | None = None) -> TakenTurns:
    return TakenTurns(tmp_path, seconds)


def names(*wanted: str) -> list[Peer]:
    return [PEERS[name] for name in wanted]


def plan(repeats: int = 3) -> Plan:
    return Plan(Path("nowhere"), events=10_000_000, repeats=repeats)


def test_what_peers_read_are_the_kinds_that_our_query_reads() -> None:
    assert {query: set(READS[query]) for query in READS} == {
        query: set(QUERIES[query].reads) for query in READS
    }


def test_every_peer_has_a_program_and_what_is_installed_is_pinned() -> None:
    assert all((PROGRAMS / f"{peer.module}.py").exists() for peer in PEERS.values())
    assert all("==" in package for peer in PEERS.values() for package in peer.packages)


def test_ticks_of_a_process_are_its_own_whatever_its_name() -> None:
    stat = "17 (a ) b) S 5 17 17 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0"
    assert process_facts(stat) == (5, 120)


def test_a_process_that_has_ended_counts_with_what_it_was_last_seen_to_have_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: Iterator[dict[int, int]] = iter([{1: 100}, {1: 110, 2: 50}, {1: 130}])
    monkeypatch.setattr(measure_module, "read_tree", lambda: next(seen))
    monkeypatch.setattr(measure_module, "_TICKS_PER_SECOND", 10)
    monkeypatch.setattr(measure_module, "SAMPLE_SECONDS", 60)
    with measure_module.Measured() as measured:
        assert measured.cpu_seconds_so_far() == 6.0
    assert measured.cpu_seconds == 8.0


def test_a_tree_holds_all_that_descend_from_its_root_and_nobody_else() -> None:
    assert tree_of(10, {10: 1, 13: 12, 12: 10, 11: 10, 20: 1, 21: 20}) == {10, 11, 12, 13}


def test_the_warm_up_gives_the_results_to_compare_and_the_last_run_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: list[tuple[str, str, Path | None]] = []

    def run(query: str, events: Path, out: Path | None) -> Figures:
        runs.append((query, events.name, out))
        return {"net_runtime_ms": len(runs)}

    out = tmp_path / "out"
    arguments = ["peer", "q1", "large", "--warm-up", "small", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", arguments)
    peer_main(run, {"q1"}, [])
    assert runs == [("q1", "small", out), ("q1", "large", None)]
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"query": "q1", "versions": {}, "net_runtime_ms": 2}


def test_peers_take_turns_and_all_have_as_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, bool]] = []

    def run_once(_: Plan, peer: Peer, query: str, *, is_first: bool) -> Figures:
        order.append((peer.name, is_first))
        return RUN

    monkeypatch.setattr(turns, "run_once", run_once)
    both = names(HEADRACE, "pathway")
    measure(plan(repeats=2), both, "q1", lambda _: None, later(tmp_path))
    assert order == [
        (HEADRACE, True),
        ("pathway", True),
        (HEADRACE, False),
        ("pathway", False),
    ]


def test_what_was_interrupted_goes_on_with_the_turns_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def run_once(_: Plan, peer: Peer, query: str, *, is_first: bool) -> Figures:
        order.append(peer.name)
        if peer.name == "flink":
            raise PeerFailedError("no Java")
        return RUN

    monkeypatch.setattr(turns, "run_once", run_once)
    three = names(HEADRACE, "flink", "polars")
    with pytest.raises(OutOfTimeError, match="q1: headrace, turn 1"):
        measure(plan(2), three, "q1", lambda _: None, later(tmp_path, 0.0))
    first = later(tmp_path)
    for peer in three[:2]:
        with suppress(PeerFailedError):
            first.turn(plan(2), peer, "q1", 0)
    again = later(tmp_path)
    figures = measure(plan(2), three, "q1", lambda _: None, again)
    assert order == [HEADRACE, "flink", "polars", HEADRACE, "polars"]
    assert (figures["headrace_turns"], figures["failed"]) == (2, {"flink": "no Java"})
    again.forget()
    assert not (tmp_path / "turns.jsonl").exists()


def test_there_is_no_multiple_of_few_turns_few_events_or_few_checkpoints() -> None:
    ours = flat(HEADRACE)
    slower = RUN | {"net_runtime_ms": 250}
    theirs = flat("flink", ours=slower)
    assert multiple(ours | theirs, "flink") == 2.0
    for lacking in ("flink_turns", "flink_events", "flink_checkpoints", "headrace_checkpoints"):
        assert multiple(ours | theirs | {lacking: 2}, "flink") is None
    assert doubts(ours | theirs | {"flink_turns": 1}, "flink") == ["1 turn"]
    assert doubts(ours | theirs | {"flink_events": 10_000}, "flink") == ["10,000 events"]
    assert doubts(ours | theirs | {"flink_checkpoints": 4}, "flink") == ["only 4 cp"]
    for begun in ([5, 3_005, 4_005], [5, 1_005], [5, 1_005, 1_995], []):
        assert doubts(ours | theirs | {"flink_begun": begun}, "flink") == ["in other turns"]
    batch = flat("duckdb", ours=slower, checkpoints=0)
    assert multiple(ours | batch, "duckdb") == 2.0, "who takes none has none to lack"


def test_lines_that_were_measured_in_an_older_way_are_told_no_more(tmp_path: Path) -> None:
    old = line("q1", **flat(HEADRACE), **flat("duckdb"), **flat("flink"), protocol=1)
    (tmp_path / "nexmark.jsonl").write_text(json.dumps(old))
    assert newest(tmp_path) == {}
    page = write_page({}, [], {})
    assert "No figures are kept" in page and "×" not in page
    assert "| DuckDB | – |" in page, "what they keep, read and write stands there"


def test_a_peer_that_fails_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run_once(_: Plan, peer: Peer, query: str, *, is_first: bool) -> Figures:
        asked.append(peer.name)
        if peer.name == "flink":
            raise PeerFailedError("no Java")
        return RUN

    monkeypatch.setattr(turns, "run_once", run_once)
    three = names(HEADRACE, "polars", "flink")
    figures = measure(plan(repeats=2), three, "q1", lambda _: None, later(tmp_path))
    assert figures["failed"] == {"flink": "no Java"}
    assert figures["polars_rows_per_second"] == 2_000_000
    assert not any(key.startswith("flink") for key in figures)
    assert asked.count("flink") == 1


def test_figures_are_medians_and_the_ratio_is_how_much_faster_we_are() -> None:
    runs = [RUN | {"net_runtime_ms": wall, "cpu_seconds": wall / 500} for wall in (250, 1000, 500)]
    ours = [RUN | {"net_runtime_ms": 100}]
    figures = summary("polars", runs, ours)
    assert figures["polars_rows_per_second"] == 2_000_000
    assert figures["polars_cpu_seconds_per_mrow"] == 1.0
    assert figures["polars_ratio"] == 5.0
    assert "headrace_ratio" not in summary(HEADRACE, ours, ours)


def test_a_peer_s_variables_are_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "kept")
    program = "import json, os; print(json.dumps([os.environ['OURS'], os.environ['ITS']]))"
    assert last_line([sys.executable, "-c", program], {"ITS": "set"}) == ["kept", "set"]


def test_the_reason_of_a_failure_is_the_last_thing_that_was_said() -> None:
    assert reason("Traceback\n  ...\nOSError: no such file\n\n") == "OSError: no such file"
    assert reason("TypeError: a Row\n\tat java.Thread.run\n\t... 3 more\n") == "TypeError: a Row"
    assert reason("\n") == "failed without a word"


def test_results_are_all_files_but_hidden_ones_and_those_of_bookkeeping(tmp_path: Path) -> None:
    (tmp_path / "day").mkdir()
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "day" / "part-0").write_bytes(b"PAR1...")
    (tmp_path / "part-1.csv").write_text("1,2\n")
    (tmp_path / "empty.csv").touch()
    (tmp_path / ".part-1.csv.crc").write_text("?")
    (tmp_path / "_spark_metadata" / "0").write_text("v1")
    expected = [str(tmp_path / "day" / "part-0")], [str(tmp_path / "part-1.csv")]
    assert result_files(tmp_path) == expected


def test_times_are_compared_as_milliseconds_whatever_type_a_peer_gave_them() -> None:
    described = [('max("id")', "BIGINT"), ("begin", "TIMESTAMP WITH TIME ZONE")]
    assert in_milliseconds(described) == '"max(""id"")", epoch_ms("begin")'


def test_the_page_is_made_of_the_newest_line_with_peers_of_each_query(tmp_path: Path) -> None:
    three = flat(HEADRACE) | flat("duckdb") | flat("flink")
    lines = [
        line("q5", **three),
        line("q1", **three, marked=1),
        line("q1", **three, marked=2),
        line("q1", **flat(HEADRACE), **flat("duckdb"), marked=3),
        line("q1", **three, marked=4) | {},
        line("q20", **three),
    ]
    lines[4]["figures"]["host"] = "one process"
    (tmp_path / "nexmark.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = newest(tmp_path)
    assert list(found) == ["q1", "q5"]
    assert found["q1"]["figures"]["marked"] == 2


def test_a_peer_that_was_measured_later_beside_us_alone_stands_where_it_was_missing(
    tmp_path: Path,
) -> None:
    slower = RUN | {"net_runtime_ms": 250}
    three = flat(HEADRACE) | flat("duckdb") | flat("flink")
    lines = [
        line("q5", **three, failed={"pyflink": "not done within 300 s"}),
        line("q5", **flat(HEADRACE, measurement=1), **flat("pyflink", ours=slower, measurement=1)),
        line("q5", **flat(HEADRACE), **flat("flink", ours=slower, peak_mb=999)),
    ]
    (tmp_path / "nexmark.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = newest(tmp_path)
    figures = found["q5"]["figures"]
    assert (figures["pyflink_ratio"], figures["flink_peak_mb"]) == (2.0, 300)
    assert figures["failed"] == {}
    apart = [name for name in ("duckdb", "flink", "pyflink") if doubts(figures, name)]
    assert (apart, doubts(figures, "pyflink")) == (["pyflink"], ["in other turns"])
    page = write_page(found, [], {})
    assert "and so without a multiple: PyFlink DataStream (q5)." in page
    assert "What did not work" not in page


def test_a_peer_that_has_no_newer_figures_keeps_those_it_has(tmp_path: Path) -> None:
    slower = RUN | {"net_runtime_ms": 250}
    lines = [
        line("q5", **flat(HEADRACE), **flat("duckdb"), **flat("spark", ours=slower)),
        line(
            "q5",
            **flat(HEADRACE, measurement=1, input_rows=3_000_000),
            **flat("duckdb", measurement=1),
            **flat("flink", measurement=1),
        ),
    ]
    (tmp_path / "nexmark.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = newest(tmp_path)
    figures = found["q5"]["figures"]
    assert (figures["headrace_input_rows"], figures["spark_ratio"]) == (3_000_000, 2.0)
    assert doubts(figures, "spark") == ["in other turns"]
    page = write_page(found, [], {})
    assert "and so without a multiple: Spark Structured Streaming (q5)." in page


def test_the_page_says_what_is_to_be_reached_and_how_far_that_is_from_other_engines() -> None:
    slower = RUN | {"net_runtime_ms": 250}
    page = write_page({"q3": line("q3", **flat(HEADRACE), **flat("flink", ours=slower))}, [], {})
    assert "| q3 | 3 | 2 | 3.53 | 2 | 0.13 | – | 0.0968 | – |" in page
    assert "Missed as a rate: q3 (2 of 3). Not measured: q1, q2, q5, q7, q7max, q8, q11." in page
    assert "to reach" not in write_page({"q0": line("q0", **flat(HEADRACE))}, [], {})


def test_the_page_names_who_failed_and_who_gave_other_results() -> None:
    figures = (
        flat(HEADRACE, same=True)
        | flat("polars", ours=RUN | {"net_runtime_ms": 250}, same=False)
        | {"failed": {"bytewax": "a worker failed"}}
    )
    page = write_page({"q1": line("q1", **figures), "q2": line("q2", **flat(HEADRACE))}, [], {})
    assert "| q1 | 2, 12 cp | 2, 12 cp (× 2) OTHER RESULTS | failed |" in page
    assert "| q2 | 2, 12 cp | – | – |" in page
    keeps = [f"exactly-once checkpoints every {CHECKPOINT_MS} ms", PEERS["polars"].keeps, "nothing"]
    assert f"| keeps | {' | '.join(keeps)} |" in page
    assert "- q1, bytewax: a worker failed" in page


def test_the_page_names_who_was_given_fewer_events_than_the_others() -> None:
    whole = flat(HEADRACE, events=10_000_000)
    slow = flat("pyflink", events=15_000)
    page = write_page(
        {
            "q1": line("q1", **whole, **flat("pyflink", events=200_000)),
            "q5": line("q5", **whole, **slow),
            "q7": line("q7", **whole, **slow),
        },
        [],
        {},
    )
    assert "than the others:\nPyFlink DataStream 200,000 of q1 and 15,000 of q5, q7." in page
    assert "fewer events than the others" not in write_page({"q1": line("q1", **whole)}, [], {})


def test_the_page_says_of_each_query_when_and_how_it_was_measured() -> None:
    lines = {
        "q1": line("q1", **flat(HEADRACE, load_before=7)),
        "q2": line("q2", **flat(HEADRACE)) | {"date": "2026-02-02", "machine": "2 x other"},
    }
    page = write_page(lines, [], {})
    assert "| q1 | 2026-01-01 | 2 x ? | 10,000,000 | 3 | 7 |" in page
    assert "| q2 | 2026-02-02 | 2 x other | 10,000,000 | 3 | 0.5 |" in page
