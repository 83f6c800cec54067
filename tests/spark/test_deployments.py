"""Deployments as docs/deploy.md tells them: upgrades, a standalone cluster, spark-submit, supervisors."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.exactly_once import lines_of_files
from testkit.waiting import wait_until
from tests.spark.commands import NO_UI, Commands, check_counts, counts_program
from tests.spark.pages import answer, cluster_of
from tests.spark.processes import SPARK_HOME, new_mark
from tests.spark.programs import ROOT, Program
from tests.spark.standalone import StandaloneCluster
from tests.spark.systemd_unit import SystemdUnit

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CHECKPOINTS = ("-D", "execution.checkpointing.interval=500 ms")
UNITS = ROOT / "examples" / "deploy"


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    cluster = StandaloneCluster(tmp_path_factory.mktemp("standalone"), new_mark())
    yield cluster
    cluster.end()


@pytest.fixture
def commands(tmp_path: Path, started: list[Program]) -> Commands:
    return Commands(tmp_path, started)


@pytest.mark.long
def test_a_changed_program_goes_on_in_a_new_session_from_the_savepoint_of_the_first(
    commands: Commands, tmp_path: Path
) -> None:
    count = 6_000
    savepoints = tmp_path / "savepoints"
    (tmp_path / "job.py").write_text(counts_program(count, 500))
    first = commands.daemon("cluster", "start", "--name", "nightly", *NO_UI)
    commands("run", "-d", "--target", "session", *CHECKPOINTS, "job.py")
    wait_until(lambda: len(lines_of_files(tmp_path / "lines")) > 0, 60, "committed lines")
    commands("stop", "-p", str(savepoints), commands.running_jobs()["counts"])
    commands("cluster", "stop", "nightly")
    first.assert_nothing_is_left()
    written = lines_of_files(tmp_path / "lines")

    more = "lines = lines.map(lambda line: line + ' in the second version', Types.STRING())"
    (tmp_path / "job.py").write_text(counts_program(count, count, more))
    commands.daemon("cluster", "start", "--name", "nightly", *NO_UI)
    [savepoint] = savepoints.iterdir()
    commands("run", "--target", "session", "-s", str(savepoint), *CHECKPOINTS, "job.py")
    commands("cluster", "stop", "nightly")

    check_counts(tmp_path, count, r"(\d+) (\d+)(?: in the second version)?")
    now = lines_of_files(tmp_path / "lines")
    assert {name: now[name] for name in written} == written
    assert all(line.endswith("version") for name in now.keys() - written for line in now[name])


def test_a_session_on_a_standalone_cluster_runs_a_job_and_leaves_nothing_there(
    commands: Commands, tmp_path: Path, standalone: StandaloneCluster
) -> None:
    (tmp_path / "job.py").write_text(counts_program(2_000, 2_000))
    session = commands.daemon("cluster", "start", "--name", "nightly", *standalone.options, *NO_UI)
    assert commands.answer("cluster", "info")["master"] == standalone.url
    commands("run", "--cluster", "nightly", *CHECKPOINTS, "job.py")
    commands("cluster", "stop", "nightly")
    check_counts(tmp_path, 2_000)
    session.assert_nothing_is_left()


def spark_submit(standalone: StandaloneCluster, *arguments: str) -> list[str]:
    """The command line of the page on deployment; the secret of the cluster is in the file of properties."""
    return [
        str(SPARK_HOME / "bin" / "spark-submit"),
        "--master", standalone.url,
        "--properties-file", str(standalone.properties_file),
        "--conf", f"spark.pyspark.python={sys.executable}",
        *arguments,
    ]  # fmt: skip


def test_a_session_under_spark_submit_has_the_settings_that_it_was_submitted_with(
    commands: Commands, standalone: StandaloneCluster
) -> None:
    submitted = commands.begin(
        *spark_submit(standalone, "--name", "by-submit", "--conf", "spark.executor.cores=1"),
        str(ROOT / "headrace" / "__main__.py"), "cluster", "start", "--foreground", "--name", "submitted",
    )  # fmt: skip
    submitted.wait_for_line("session 'submitted' runs at", 150)
    info = commands.answer("cluster", "info", "submitted")
    assert info["master"] == standalone.url
    assert "COLLECTED [1, 4, 9]" in commands("run", "--cluster", "submitted", "squares.py")
    connection = cluster_of(commands.folder / "home").connection
    status, jobs = answer(f"{connection.address}/spark/jobs/", connection.token)
    assert status == 200 and "TaskManager " in jobs
    # One core each: an executor for every core of the two workers, where else there would be two.
    assert len(standalone.executors()) == 4
    submitted.process.terminate()
    submitted.wait(60)
    submitted.assert_nothing_is_left()


def test_standalone_clusters_take_no_python_program_in_cluster_mode_and_say_so(
    commands: Commands, standalone: StandaloneCluster
) -> None:
    refused = commands.begin(
        *spark_submit(standalone, "--deploy-mode", "cluster"),
        str(ROOT / "examples" / "delay_per_airport.py"),
    )
    assert refused.wait(60) == 1
    told = "".join(refused.err)
    assert (
        "Cluster deploy mode is currently not supported for python applications on standalone clusters"
        in told
    ), refused.report()


def started_unit(commands: Commands, name: str, replaced: dict[str, str]) -> SystemdUnit:
    """Start a unit of the examples as it is, with the folder of `commands` as the home of its user."""
    (commands.folder / "headrace").mkdir()
    (commands.folder / "headrace" / ".venv").symlink_to(Path(sys.executable).parents[1])
    unit = SystemdUnit(
        UNITS / name,
        {"%h": str(commands.folder), **replaced},
        lambda command: commands.begin(*command),
    )
    wait_until(lambda: bool(unit.lives), what="the first life")
    return unit


def test_a_session_that_systemd_stops_cancels_its_jobs_and_leaves_their_checkpoints(
    commands: Commands, tmp_path: Path
) -> None:
    unit = started_unit(commands, "headrace-session.service", {})
    unit.lives[0].wait_for_line("session 'nightly' runs at", 150)
    commands("run", "-d", "--cluster", "nightly", *CHECKPOINTS, "endless.py", "numbers")
    checkpoints = tmp_path / "headrace" / "checkpoints"
    wait_until(lambda: any(checkpoints.glob("*/chk-*/_metadata")), 60, "a checkpoint")
    assert unit.stop() == 0
    assert any(checkpoints.glob("*/chk-*/_metadata"))
    assert len(unit.lives) == 1
    unit.lives[0].assert_nothing_is_left()


@pytest.mark.long
def test_a_driver_that_systemd_starts_again_goes_on_with_its_jobs_from_the_last_checkpoint(
    commands: Commands, tmp_path: Path
) -> None:
    count = 3_000
    (tmp_path / "job.py").write_text(counts_program(count, 200))
    unit = started_unit(
        commands, "headrace-orders@.service", {"%i": "1", "/shared": str(tmp_path / "shared")}
    )
    unit.lives[0].wait_for_line("session 'orders-1' runs at", 150)
    commands("run", "-d", "--cluster", "orders-1", *CHECKPOINTS, "job.py")
    wait_until(lambda: len(lines_of_files(tmp_path / "lines")) > 2, 60, "committed lines")
    os.kill(unit.lives[0].pid, signal.SIGKILL)
    wait_until(lambda: len(unit.lives) > 1, 30, "the second life")
    unit.lives[1].wait_for_line("session 'orders-1' runs at", 150)
    wait_until(
        lambda: sum(map(len, lines_of_files(tmp_path / "lines").values())) >= count,
        120,
        "the last line",
    )
    assert unit.stop() == 0
    check_counts(tmp_path, count)
    assert len(unit.lives) == 2
    unit.lives[1].assert_nothing_is_left()
