"""`headrace top`: figures from the cluster's answers, the screen, the lines for pipes, and the keys."""

import io
import json
import os
import pty
import termios
from typing import Any

import pytest
from rich.console import Console

from headrace.cli.jobs.job_figures import (
    JobFigures,
    ShownCheckpoints,
    VertexFigures,
    checkpoint_figures,
    vertex_figures,
)
from headrace.cli.jobs.top import JobReader, keyboard, watch
from headrace.cli.jobs.top_view import BAR_WIDTH, bar_lengths, bar_of, columns_for, screen_of
from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.metrics.event_time import lag_ms
from headrace.rest.client import RestClient
from headrace.rest.client_errors import ClusterEndedError, RestUnreachableError
from tests.unit.cli.jobs.answers import JOB_PAGE, ONE_RUNNING, SINK, STARTED, vertex
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import JOB, VERTEX, fake_cluster

NOW = STARTED + 90_000


def aggregated(name: str, low: float, high: float, total: float) -> dict[str, Any]:
    return {"id": name, "min": low, "max": high, "avg": total / 2, "sum": total, "skew": 1.0}


SOURCE_METRICS = [
    aggregated("busyTimeMsPerSecond", 100.0, 900.0, 1000.0),
    aggregated("backPressuredTimeMsPerSecond", 300.0, 300.0, 600.0),
    aggregated("idleTimeMsPerSecond", 0.0, 400.0, 400.0),
    aggregated("numRecordsInPerSecond", 0.0, 0.0, 0.0),
    aggregated("numRecordsOutPerSecond", 5_000.0, 7_345.0, 12_345.0),
    aggregated("currentOutputWatermark", NOW - 3_000.0, NOW - 1_000.0, 2.0 * NOW),
]
CHECKPOINTS = {
    "counts": {"restored": 0, "total": 14, "in_progress": 1, "completed": 12, "failed": 1},
    "latest": {
        "completed": {
            "id": 12,
            "latest_ack_timestamp": NOW - 4_000,
            "end_to_end_duration": 250,
            "checkpointed_size": 2048,
        },
        "failed": {"id": 13, "failure_message": "expired\nmore"},
    },
}
ANSWERS: dict[str, Any] = {
    **ONE_RUNNING,
    f"GET /jobs/{JOB}": JOB_PAGE,
    f"GET /jobs/{JOB}/vertices/{VERTEX}/subtasks/metrics": SOURCE_METRICS,
    f"GET /jobs/{JOB}/vertices/{SINK}/subtasks/metrics": [],
    f"GET /jobs/{JOB}/metrics": [{"id": "numRestarts", "value": "2"}],
    f"GET /jobs/{JOB}/checkpoints": CHECKPOINTS,
}


def figures(vertex_count: int = 1, state: str = "RUNNING", **others: Any) -> JobFigures:
    vertices = tuple(
        VertexFigures(
            number,
            "0b",
            f"vertex {number}",
            "RUNNING",
            2,
            busy=0.5,
            busy_most=0.9,
            back_pressured=0.25,
            idle=0.25,
        )
        for number in range(1, vertex_count + 1)
    )
    return JobFigures(JOB, "departures", state, NOW, 90_000, vertices, **others)


def drawn(
    shown: JobFigures, width: int = 160, first: int = 0, count: int = 10, notice: str = ""
) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(screen_of(shown, width, first, count, notice))
    return out.getvalue()


def test_once_prints_a_line_for_each_vertex(shell: Shell) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        outcome = shell("top", "--once", "-m", cluster.authority)
    assert outcome.lines == [
        f"departures ({JOB}): RUNNING, 90 s, restarts: 2",
        "checkpoints: 12 completed, 1 failed, 1 in progress; last 12, 4.0 s ago, took 0.2 s, 2.0 KB; the newest "
        "failed: expired",
        "  1 Source: flights -> Map ×2 RUNNING  busy 50%≤90%  back-pressured 30%  idle 20%  in/s 0  out/s 12.3 k  "
        "watermark 2026-11-18 11:08  lag 3.0 s",
        "  2 Sink: Print ×1 RUNNING",
    ]


def test_a_task_manager_whose_interpreter_lock_is_held_is_told(
    shell: Shell,
) -> None:
    held = {"duration": 12_000, "function": "hash_all (program.py:7)"}
    answer = {"taskmanagers": [{"id": "tm-1"}, {"id": "tm-2", "heldInterpreterLock": held}]}
    with fake_cluster({**ANSWERS, "GET /taskmanagers": answer}, token="") as cluster:
        outcome = shell("top", "--once", "-m", cluster.authority)
    said = "TaskManager tm-2 does not answer: its interpreter lock is held for 12 s in hash_all (program.py:7)"
    assert outcome.lines[2] == said
    assert said in drawn(figures(held_lock=said))
    assert said not in drawn(figures(held_lock=said, failure="KeyError: 1"))


def test_where_nobody_watches_it_prints_once_and_as_json_one_document(shell: Shell) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        assert shell("top", "-m", cluster.authority, JOB).lines[0].startswith("departures")
        told = json.loads(shell("top", "--json", "-m", cluster.authority, JOB).out)
    assert told["job-id"] == JOB
    assert told["vertices"][0]["busy-most"] == pytest.approx(0.9)
    assert (told["restarts"], told["checkpoints"]["last-id"]) == (2, 12)


def test_without_checkpoints_and_metrics_the_rest_is_shown(shell: Shell) -> None:
    with fake_cluster({f"GET /jobs/{JOB}": JOB_PAGE}, token="") as cluster:
        outcome = shell("top", "--once", "-m", cluster.authority, JOB)
    assert outcome.code == 0
    assert outcome.lines[:2] == [f"departures ({JOB}): RUNNING, 90 s", "checkpoints: off"]


def test_a_job_in_trouble_says_why(shell: Shell) -> None:
    failed = {"exceptionName": "X", "stacktrace": "KeyError: 1 (in operator 'Map', job.py, line 9)"}
    answers = {
        **ANSWERS,
        f"GET /jobs/{JOB}": {**JOB_PAGE, "state": "RESTARTING"},
        f"GET /jobs/{JOB}/exceptions": {"exceptionHistory": {"entries": [failed]}},
    }
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("top", "--once", "-m", cluster.authority, JOB)
    assert outcome.lines[2] == "job.py, line 9: KeyError: 1 (in operator 'Map')"


def test_several_running_jobs_have_to_be_named(shell: Shell) -> None:
    two = {"jobs": [*ONE_RUNNING["GET /jobs/overview"]["jobs"] * 2]}
    with fake_cluster({"GET /jobs/overview": two}, token="") as cluster:
        outcome = shell("top", "-m", cluster.authority)
    assert (outcome.code, outcome.err.splitlines()[0]) == (
        1,
        "error: 2 jobs are running: name one of them",
    )
    with fake_cluster({"GET /jobs/overview": {"jobs": []}}, token="") as cluster:
        assert "no job is running, and none has run" in shell("top", "-m", cluster.authority).err


def test_metrics_are_asked_for_of_the_vertices_on_the_screen_alone() -> None:
    many = [vertex(f"{number:032x}", f"v{number}") for number in range(1000)]
    answers = {**ANSWERS, f"GET /jobs/{JOB}": {**JOB_PAGE, "vertices": many}}
    with fake_cluster(answers, token="") as cluster:
        found = JobReader(RestClient(cluster.address), JOB).read(first=990, count=20)
    assert len(found.vertices) == 1000
    asked = [line for line in cluster.lines if line.endswith("/subtasks/metrics")]
    assert asked == [
        f"GET /jobs/{JOB}/vertices/{number:032x}/subtasks/metrics" for number in range(990, 1000)
    ]


@pytest.mark.parametrize(
    "answer", [None, {}, [], [{"id": "busyTimeMsPerSecond", "avg": "NaN"}], [{"x": 1}], "text", [7]]
)
def test_answers_without_figures_leave_gaps(answer: object) -> None:
    found = vertex_figures(1, vertex(VERTEX, "v"), answer)
    assert (found.busy, found.watermark_ms, found.records_in_per_second) == (None, None, None)


@pytest.mark.parametrize(
    ("least", "lag", "shown"),
    [(float(MIN_TIMESTAMP), None, None), (float(MAX_WATERMARK), None, True), (NOW - 5.0, 5, True)],
)
def test_a_watermark_is_behind_the_clock_only_between_the_first_and_the_last(
    least: float, lag: int | None, shown: bool | None
) -> None:
    metrics = [aggregated("currentInputWatermark", least, 0, 0)]
    found = vertex_figures(1, vertex(VERTEX, "v"), metrics)
    assert (found.watermark_ms is not None) is bool(shown)
    assert lag_ms(found.watermark_ms, NOW) == lag


def test_a_failed_checkpoint_is_told_while_it_is_the_newest() -> None:
    assert checkpoint_figures(CHECKPOINTS).failure == "expired\nmore"
    latest = {"completed": {"id": 14}, "failed": {"id": 13, "failure_message": "x"}}
    assert checkpoint_figures({"latest": latest}).failure == ""
    assert checkpoint_figures({}) == ShownCheckpoints(0, 0, 0)


def test_a_savepoint_overtakes_a_failed_checkpoint() -> None:
    latest = {
        "completed": {"id": 4},
        "failed": {"id": 5, "failure_message": "x"},
        "savepoint": {"id": 6, "end_to_end_duration": 70, "checkpointed_size": 8},
    }
    shown = checkpoint_figures({"latest": latest})
    assert shown == ShownCheckpoints(0, 0, 0, 6, 0, 70, 8, "")
    latest["failed"]["id"] = 7
    assert checkpoint_figures({"latest": latest}).failure == "x"


@pytest.mark.parametrize(
    ("shares", "lengths"),
    [
        ((0.5, 0.25, 0.25), [10, 5, 5]),
        ((None, None, None), [0, 0, 0]),
        ((1.0, 1.0, 1.0), [20, 0, 0]),
        ((0.33, 0.33, 0.34), [7, 6, 7]),
        ((0.01, 0.0, 0.99), [0, 0, 20]),
    ],
)
def test_a_bar_is_never_longer_than_its_place(
    shares: tuple[float | None, ...], lengths: list[int]
) -> None:
    assert bar_lengths(shares) == lengths
    assert sum(lengths) <= BAR_WIDTH


def test_a_bar_is_told_apart_without_colours() -> None:
    (one,) = figures().vertices
    assert bar_of(one).plain == "█" * 10 + "▒" * 5 + "░" * 5


@pytest.mark.parametrize("width", [40, 80, 120, 250])
def test_the_screen_fits_terminals_of_any_width(width: int) -> None:
    shown = drawn(figures(3, failure="KeyError: 1"), width)
    assert "departures" in shown
    assert all(len(line) <= width for line in shown.splitlines())


def test_figures_are_whole_at_any_width_and_the_less_important_ones_go_first() -> None:
    names = {width: [one.name for one in columns_for(width)] for width in (20, 80, 110, 130)}
    assert names[130] == ["state", "time", "busy", "bp", "in/s", "out/s", "watermark", "lag"]
    assert set(names[130]) - set(names[110]) == {"watermark"}
    assert set(names[110]) - set(names[80]) == {"time"}
    assert names[20] == []
    assert all("…" not in drawn(figures(2), width) for width in (60, 80, 100, 130))
    assert "█ busy" in drawn(figures(), 130)
    assert "█ busy" not in drawn(figures(), 80)


def test_the_screen_shows_the_vertices_in_view_and_a_notice() -> None:
    shown = drawn(figures(30, restarts=3), first=10, count=5)
    assert "vertex 11" in shown
    assert "vertex 15" in shown
    assert "vertex 16" not in shown
    assert "vertices 11-15 of 30" in shown
    assert "restarts 3" in shown
    assert "no answer" in drawn(figures(), notice="no answer (1): gone")


class ScriptedReader:
    def __init__(self, *answers: JobFigures | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, int | None]] = []

    def read(self, first: int = 0, count: int | None = None) -> JobFigures:
        self.asked.append((first, count))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class ScriptedKeys:
    def __init__(self, *names: str | None) -> None:
        self.names = list(names)

    def wait(self, seconds: float) -> str | None:
        name = self.names.pop(0)
        if name == "Ctrl-C":
            raise KeyboardInterrupt
        return name


def watched(reader: Any, keys: Any) -> tuple[JobFigures, list[tuple[int, str]]]:
    shown: list[tuple[int, str]] = []

    def show(_: JobFigures, first: int, count: int, notice: str) -> None:
        shown.append((first, notice))

    return watch(reader, show, lambda: 10, keys, 2.0), shown


@pytest.mark.parametrize("key", ["quit", "Ctrl-C"])
def test_it_ends_with_a_key(key: str) -> None:
    last, shown = watched(ScriptedReader(figures()), ScriptedKeys(key))
    assert (last.state, len(shown)) == ("RUNNING", 1)


def test_it_ends_with_the_job() -> None:
    over = figures(state="FINISHED")
    last, shown = watched(ScriptedReader(figures(), over), ScriptedKeys(None))
    assert (last, len(shown)) == (over, 2)


def test_keys_scroll_within_the_vertices() -> None:
    pressed = ["down", "page down", "end", "up", "home", "up", "quit"]
    reader = ScriptedReader(*[figures(25)] * 7)
    _, shown = watched(reader, ScriptedKeys(*pressed))
    assert [first for first, _ in shown] == [0, 1, 11, 15, 14, 0, 0]
    assert reader.asked[2] == (11, 10)


def test_a_question_without_an_answer_is_told_and_the_next_one_may_have_one() -> None:
    gone = RestUnreachableError("http://x:1", "gone")
    reader = ScriptedReader(figures(), gone, gone, figures(state="FINISHED"))
    last, shown = watched(reader, ScriptedKeys(None, None, None))
    assert last.state == "FINISHED"
    assert [notice.partition(":")[0] for _, notice in shown if notice] == [
        "no answer (1)",
        "no answer (2)",
    ]


def test_a_cluster_that_ends_with_its_job_ends_the_view_with_what_was_seen_last() -> None:
    reader = ScriptedReader(figures(), ClusterEndedError("http://x:1"))
    last, shown = watched(reader, ScriptedKeys(None))
    assert (last.state, len(shown)) == ("RUNNING", 1)


def test_a_cluster_that_is_gone_ends_the_view_with_its_error() -> None:
    gone = [RestUnreachableError("http://x:1", "gone")] * 5
    with pytest.raises(RestUnreachableError):
        watched(ScriptedReader(figures(), *gone), ScriptedKeys(*[None] * 5))


@pytest.mark.parametrize(
    ("sent", "name"),
    [(b"q", "quit"), (b"\x1b[B", "down"), (b"\x1b[5~", "page up"), (b"x", None), (b"\x1b", "quit")],
)
def test_a_terminal_hands_on_keys_at_once_and_is_as_before_afterwards(
    sent: bytes, name: str | None
) -> None:
    master, slave = pty.openpty()
    with open(slave, "rb", buffering=0) as raw, io.TextIOWrapper(raw) as terminal:  # pyright: ignore[reportArgumentType]
        before = termios.tcgetattr(slave)
        with keyboard(terminal) as keys:
            os.write(master, sent)
            assert keys.wait(10) == name
            assert keys.wait(0) is None
        assert termios.tcgetattr(slave) == before
    os.close(master)
