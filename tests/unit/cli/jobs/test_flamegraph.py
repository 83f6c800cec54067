"""`headrace flamegraph`: waiting for samples, and the files that are written."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from headrace.cli.jobs.flamegraph import NoSamplesError, await_samples, node_of
from headrace.core.clock import ManualClock
from headrace.core.process.flame_graph import flame_graph_svg, folded_stacks
from headrace.rest.client import RestClient
from tests.unit.cli.jobs.answers import JOB_PAGE, ONE_RUNNING
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import JOB, VERTEX, fake_cluster

PATH = f"/jobs/{JOB}/vertices/{VERTEX}/flamegraph"
DATA = {
    "name": "root",
    "value": 10,
    "children": [
        {"name": "job.delay:12", "value": 7, "children": [{"name": "re.match:1", "value": 3}]},
        {"name": "a;<b>&\x00", "value": 3, "children": []},
    ],
}
NOT_YET = {"endTimestamp": -3}
SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_is_written_once_there_are_samples(shell: Shell, tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        f"GET /jobs/{JOB}": JOB_PAGE,
        f"GET {PATH}": (NOT_YET, {"endTimestamp": 5, "data": DATA}),
    }
    file = tmp_path / "map.svg"
    options = ["--type", "on_cpu", "--subtask", "1", "-o", str(file)]
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("flamegraph", *options, "-m", cluster.authority, JOB, "1")
    assert outcome.out == f"10 samples of 'Source: flights -> Map' are in {file}\n"
    assert ElementTree.parse(file).getroot().tag == f"{SVG}svg"
    assert cluster.requests[-1].query == {"type": ["ON_CPU"], "subtaskindex": ["1"]}


def test_folded_stacks_go_to_a_pipe(shell: Shell) -> None:
    answers = {f"GET /jobs/{JOB}": JOB_PAGE, f"GET {PATH}": {"endTimestamp": 5, "data": DATA}}
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("flamegraph", "--folded", "-o", "-", "-m", cluster.authority, JOB, "map")
    assert outcome.lines == [
        "root;job.delay:12 4",
        "root;job.delay:12;re.match:1 3",
        "root;a:<b>&\x00 3",
    ]


def test_json_names_the_file(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answers = {f"GET /jobs/{JOB}": JOB_PAGE, f"GET {PATH}": {"endTimestamp": 5, "data": DATA}}
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("flamegraph", "--json", "-m", cluster.authority, JOB, "1")
    told = json.loads(outcome.out)
    assert told == {"file": f"flamegraph-{VERTEX[:8]}.svg", "samples": 10, "vertex-id": VERTEX}
    assert (tmp_path / told["file"]).exists()


@pytest.mark.parametrize(
    ("end", "says"), [(-1, "the vertex has ended"), (-2, "-D rest.flamegraph.enabled=true")]
)
def test_where_there_will_be_no_samples_it_says_why(shell: Shell, end: int, says: str) -> None:
    answers = {f"GET /jobs/{JOB}": JOB_PAGE, f"GET {PATH}": {"endTimestamp": end}}
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("flamegraph", "-m", cluster.authority, JOB, "1")
    assert outcome.code == 1
    assert says in outcome.err


def test_without_a_job_id_it_is_of_the_only_job_that_runs(shell: Shell, tmp_path: Path) -> None:
    answers = {
        **ONE_RUNNING,
        f"GET /jobs/{JOB}": JOB_PAGE,
        f"GET {PATH}": {"endTimestamp": 5, "data": DATA},
    }
    with fake_cluster(answers, token="") as cluster:
        arguments = ["flamegraph", "-m", cluster.authority, "-o", str(tmp_path / "map.svg")]
        assert shell(*arguments, "flights").out.startswith("10 samples of 'Source: flights -> Map'")
        assert "'map' is not a job id" in shell(*arguments, "map", "1").err


def test_a_vertex_that_does_not_run_yet_is_not_waited_for(shell: Shell) -> None:
    waiting = {**JOB_PAGE, "vertices": [{**JOB_PAGE["vertices"][0], "status": "SCHEDULED"}]}
    with fake_cluster({f"GET /jobs/{JOB}": waiting}, token="") as cluster:
        outcome = shell("flamegraph", "-m", cluster.authority, JOB, "1")
    assert outcome.code == 1
    assert "'Source: flights -> Map' does not run yet (it is SCHEDULED): try again" in outcome.err


def test_a_file_that_cannot_be_written_is_told(shell: Shell, tmp_path: Path) -> None:
    answers = {f"GET /jobs/{JOB}": JOB_PAGE, f"GET {PATH}": {"endTimestamp": 5, "data": DATA}}
    with fake_cluster(answers, token="") as cluster:
        file = str(tmp_path / "absent" / "map.svg")
        outcome = shell("flamegraph", "-o", file, "-m", cluster.authority, JOB, "1")
    assert outcome.code == 1
    assert "cannot be written: No such file or directory" in outcome.err


def test_the_wait_for_samples_has_an_end() -> None:
    clock = ManualClock()
    with (
        fake_cluster({f"GET {PATH}": NOT_YET}, token="") as cluster,
        pytest.raises(NoSamplesError, match="no sample after 60 s"),
    ):
        client = RestClient(cluster.address)
        await_samples(
            client, PATH, {}, clock.monotonic_ms, lambda seconds: clock.advance_ms(20_000)
        )
    assert len(cluster.requests) == 5


def test_widths_are_shares_and_names_are_escaped() -> None:
    root = ElementTree.fromstring(flame_graph_svg(node_of(DATA), "<map>"))
    titles = [one.findtext(f"{SVG}title") for one in root.iter(f"{SVG}g")]
    assert titles == [
        "root: 10 samples, 100.0%",
        "a;<b>&?: 3 samples, 30.0%",
        "job.delay:12: 7 samples, 70.0%",
        "re.match:1: 3 samples, 30.0%",
    ]
    widths = [float(one.find(f"{SVG}rect").attrib["width"]) for one in root.iter(f"{SVG}g")]  # pyright: ignore[reportOptionalMemberAccess]
    assert widths == [1200.0, 360.0, 840.0, 360.0]


def test_graphs_that_are_too_deep_are_cut_and_none_breaks_the_writer() -> None:
    node: dict[str, Any] = {"name": "leaf", "value": 1}
    for _ in range(2000):
        node = {"name": "f", "value": 1, "children": [node]}
    frame = node_of(node)
    assert len(list(folded_stacks(frame))) == 1
    assert flame_graph_svg(frame, "deep").count("<g>") == 151
    assert list(folded_stacks(node_of({}))) == []
