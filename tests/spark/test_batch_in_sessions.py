"""Jobs in BATCH mode of other processes on one session's Spark: files, output, errors, progress and cancellation."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.rest.client import RestClient
from testkit.waiting import wait_until
from testkit.wheels import wheel
from tests.integration.rest.uploads import ended, send_program
from tests.spark.commands import HEADRACE, NO_UI, Commands
from tests.spark.java_options import settings_of_executors
from tests.spark.pages import cluster_of
from tests.spark.processes import new_mark
from tests.spark.programs import ROOT, Program
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PROGRAM: Final = ROOT / "tests" / "spark" / "session_batch_program.py"
COUNT: Final = 300_000
LOCAL_CLUSTER: Final = "local-cluster[2,2,1024]"
IN_BATCH: Final = ("-D", "execution.runtime-mode=BATCH")
WAITING: Final = """
import os, time
from pathlib import Path
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)

def wait(number):
    if number:
        import rules
        written = Path(rules.STARTED + ".part")
        written.write_text(str(os.getpid()))
        written.rename(rules.STARTED)
    while number:
        time.sleep(0.1)
    return number

numbers = env.from_collection([0, 1], type_info=Types.LONG())
numbers.rebalance().map(wait, output_type=Types.LONG()).set_parallelism(2).print()
env.execute("waiting")
"""
UPLOADED: Final = """
from headrace.common import Types
from headrace.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
env.set_parallelism(1)
words = env.from_collection(["to", "be", "to"], type_info=Types.STRING())
pair = Types.TUPLE([Types.STRING(), Types.LONG()])
counted = words.map(lambda word: (word, 1), output_type=pair).key_by(lambda one: one[0])
counted.reduce(lambda a, b: (a[0], a[1] + b[1])).print()
env.execute("uploaded")
"""
LAZY: Final = """
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.batch_dataframe_of(env.from_collection([1], type_info=Types.LONG()))
"""


def files_of_job(folder: Path, name: str) -> Path:
    """Make the files of one job, whose module `rules` has a name of its own."""
    made = folder / name
    wheel(made / "wheels", "headrace_test_pricing", "def price(n): return f'{n} coins'\n")
    (made / "requirements.txt").write_text("headrace_test_pricing==1.0\n")
    (made / "rules.py").write_text(f"NAME = '{name}'\n")
    (made / "rates.csv").write_text(f"rates of {name}")
    with zipfile.ZipFile(made / "model.zip", "w") as packed:
        packed.writestr("weights.txt", f"weights of {name}")
    return made


def job_of(rest: RestClient, name: str) -> dict[str, Any]:
    return next(one for one in rest.get("/jobs/overview")["jobs"] if one["name"] == name)


def workers_with_files(commands: Commands, folder: Path, name: str) -> str:
    """Run the program with files of this name, check what it tells, and return the name of its Python workers."""
    files, lines = files_of_job(folder, name), folder / f"lines-{name}"
    given = ("--target", "session", *IN_BATCH, str(PROGRAM), str(files), str(lines))
    program = commands.daemon("run", *given)
    parts = [line.strip().partition(" ") for line in program.out]
    told = {word: rest for word, _, rest in parts}
    rest_of_line = f"coins {name} weights of {name} rates of {name}"
    assert told["FOUND"] == str([f"1 {rest_of_line}", f"2 {rest_of_line}"]), program.report()
    sums = sorted(
        line
        for one in lines.rglob("*")
        if one.is_file() and not one.name.startswith((".", "_"))
        for line in one.read_text().splitlines()
    )
    assert sums == [f"({key}, {sum(range(key, COUNT, 3))})" for key in range(3)]
    assert len(told["WORKERS"]) == 64, "one name: jobs with equal files share Python workers"
    assert "ZeroDivisionError" in told["ERROR"], program.report()
    failing = PROGRAM.read_text().splitlines()
    line = next(n for n, text in enumerate(failing, 1) if "1 // n" in text)
    assert f"{PROGRAM}, line {line}" in told["ERROR"]
    return told["WORKERS"]


@pytest.fixture
def cluster_options(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """What a session is told to run on a cluster of Spark's of two executors, whose kind is the parameter."""
    if request.param == LOCAL_CLUSTER:
        yield ("--master", LOCAL_CLUSTER, *settings_of_executors(LOCAL_CLUSTER))
        return
    cluster = StandaloneCluster(tmp_path / "cluster", new_mark())
    yield cluster.options
    cluster.end()


@pytest.mark.parametrize(
    "cluster_options",
    [
        pytest.param(
            LOCAL_CLUSTER, marks=pytest.mark.repetition("the same on a standalone cluster")
        ),
        "standalone",
    ],
    indirect=True,
)
@pytest.mark.long
def test_a_session_on_a_cluster_brings_files_to_stages_and_ends_them(
    cluster_options: tuple[str, ...], tmp_path: Path, started: list[Program]
) -> None:
    commands = Commands(tmp_path, started)
    (tmp_path / "store").mkdir()
    options = (*cluster_options, *NO_UI, "-D", f"blob.storage.directory={tmp_path / 'store'}")
    session = commands.daemon("cluster", "start", "--name", "nightly", *options)
    rest = RestClient.of(cluster_of(tmp_path / "home"))
    workers_with_files(commands, tmp_path, "first")
    assert rest.get("/taskmanagers")["taskmanagers"] == [], "stages need no TaskManagers"

    (tmp_path / "waiting.py").write_text(WAITING)
    (tmp_path / "rules.py").write_text(f"STARTED = {str(tmp_path / 'started')!r}\n")
    given = ("-d", "--target", "session", *IN_BATCH, "-pyfs", "rules.py", "waiting.py")
    commands("run", *given)
    job = job_of(rest, "waiting")["jid"]
    wait_until((tmp_path / "started").exists, 60, "the function that waits")
    worker = int((tmp_path / "started").read_text())
    vertices = f"/jobs/{job}"

    def states() -> list[str]:
        return [one["status"] for one in rest.get(vertices)["vertices"]]

    wait_until(lambda: states()[:2] == ["FINISHED", "RUNNING"], 60, "the stage that waits")
    commands("cancel", job)
    wait_until(lambda: job_of(rest, "waiting")["state"] == "CANCELED", 60, "its end")
    wait_until(lambda: not Path(f"/proc/{worker}").exists(), 60, "Spark ends the worker")

    commands("cluster", "stop")
    session.assert_nothing_is_left()


@pytest.mark.long
def test_a_session_runs_jobs_of_other_processes_as_spark_stages(
    tmp_path: Path, started: list[Program]
) -> None:
    commands = Commands(tmp_path, started)
    store = tmp_path / "store"
    store.mkdir()
    options = (*NO_UI, "-D", f"blob.storage.directory={store}")
    session = commands.daemon("cluster", "start", "--name", "nightly", *options)
    rest = RestClient.of(cluster_of(tmp_path / "home"))

    # Files of each job reach its functions, and those alone, though the modules have one name.
    workers = {workers_with_files(commands, tmp_path, name) for name in ("first", "second")}
    assert len(workers) == 2, "jobs with other files do not"
    assert rest.get("/taskmanagers")["taskmanagers"] == [], "stages need no TaskManagers"
    wait_until(lambda: not list(store.rglob("headrace-artifacts-*/*")), what="no files are left")
    wait_until(lambda: not [one for one in store.rglob("*") if one.is_file()], what="no blobs")

    # A client that has nothing but REST.
    jar = Path(send_program(rest, "uploaded.py", UPLOADED.encode())["filename"]).name
    job = rest.post(f"/jars/{jar}/run", {})["jobid"]
    assert ended(rest, job)["application-status"] == "SUCCEEDED"
    assert rest.get(f"/jobs/{job}")["job-type"] == "BATCH"
    outputs = tmp_path / "home" / "logs"
    wait_until(
        lambda: any(
            {"(to,2)", "(be,1)"} <= set(one.read_text().splitlines())
            for one in outputs.rglob("*.out")
        ),
        what="what the uploaded program prints",
    )

    # Seen while it runs, and cancelled.
    (tmp_path / "waiting.py").write_text(WAITING)
    (tmp_path / "rules.py").write_text(f"STARTED = {str(tmp_path / 'started')!r}\n")
    commands("run", "-d", "--target", "session", *IN_BATCH, "-pyfs", "rules.py", "waiting.py")
    job = job_of(rest, "waiting")["jid"]

    def states() -> list[str]:
        return [one["status"] for one in rest.get(f"/jobs/{job}")["vertices"]]

    wait_until(lambda: states()[:2] == ["FINISHED", "RUNNING"], 60, "the stage that waits")
    commands("cancel", job)
    wait_until(lambda: job_of(rest, "waiting")["state"] == "CANCELED", 60, "its end")
    what = "no files are left, though Spark ends the worker later"
    wait_until(lambda: not list(store.rglob("headrace-artifacts-*/*")), 30, what)

    # A DataFrame of the session's Spark is none of the client's.
    (tmp_path / "lazy.py").write_text(LAZY)
    refused = commands.begin(HEADRACE, "run", "--target", "session", *IN_BATCH, "lazy.py")
    assert refused.wait(60) == 1
    assert "write files and read them with Spark" in refused.error_line()

    commands("cluster", "stop")
    session.assert_nothing_is_left()
    assert not list(store.rglob("headrace-artifacts-*/*"))
