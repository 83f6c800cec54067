"""Log files of a cluster on Spark, and what its ResourceManager tells of the processes, dead ones too."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.processes import new_mark
from tests.spark.programs import Program, headrace_run
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

PRINTING = """
import logging, sys
from headrace.api.executors import default_settings, set_default_settings
from headrace.datastream import StreamExecutionEnvironment

logging.basicConfig(level=logging.INFO)

def tell(number):
    logging.getLogger("mine").info("logged %s", number)
    print("said", number)
    print("complained", number, file=sys.stderr)
    return number

given = default_settings()
for place, job in enumerate(sys.argv[1:]):
    mode, parallelism = job.split(":")
    set_default_settings({**given, "execution.runtime-mode": mode})
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(int(parallelism))
    env.from_collection(list(range(10 * place, 10 * place + 10))).rebalance().map(tell).print()
    env.execute("printing")
"""
"""Its arguments are jobs, each a mode and a parallelism: the first prints 0 to 9, the next 10 to 19 and so on."""

LOGGED = re.compile(r"\d\d:\d\d:\d\d INFO \[.*Map.*\(([12])\)\] mine: logged (\d+)")

WATCHED = """
import json, os, signal, sys, threading
from headrace.api.executors import active_executor
from headrace.common import Configuration, Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

def work(number):
    print("worked", flush=True)
    return sum(range(20_000)) + number

config = Configuration()
config.set_string("restart-strategy.type", "none")
env = StreamExecutionEnvironment.get_execution_environment(config)
env.set_parallelism(2)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=100_000),
    WatermarkStrategy.no_watermarks(), "numbers",
)
numbers.map(work, output_type=Types.LONG()).filter(lambda _: False).print()
client = env.execute_async("watched")
handle = active_executor()._host.handle
manager = handle.resource_manager

def ask(coroutine):
    return handle.call(coroutine, 30)

def until(condition):
    for _ in range(600):
        if found := condition():
            return found
        threading.Event().wait(0.05)
    raise TimeoutError(condition)

def overview():
    return ask(manager.request_resource_overview())

def outputs(resource_id):
    files = ask(manager.request_task_manager_log_files(resource_id))
    return {file.name: file.size_bytes for file in files}

def tell(**facts):
    # Not printed: lines of the TaskManagers would come between.
    with open(sys.argv[1], "a") as file:
        print(json.dumps(facts), file=file)

info = until(lambda: [one for one in overview().task_managers if any(slot.job_id for slot in one.slots)])[0]
name = f"taskmanager-{info.resource_id}"
until(lambda: outputs(info.resource_id).get(name + ".out"))
details = client.get_job_details().result()
samples = ask(
    manager.request_vertex_stack_samples(details.job_id, details.vertices[0].vertex_id, None, 20, 10, 100)
)
def names(node):
    return {node.name}.union(*map(names, node.children))
tell(
    folder=str(handle.log_folder), mode=oct(os.stat(handle.log_folder).st_mode & 0o777),
    files=sorted(os.listdir(handle.log_folder)), cores=info.cpu_cores, memory=info.physical_memory_bytes,
    subtasks=list(samples.subtask_indexes), value=samples.full.value, on_cpu=samples.on_cpu.value,
    frames=sorted(names(samples.full)),
    threads=[one.name for one in ask(manager.request_task_manager_thread_dump(info.resource_id))],
)
os.kill(info.pid, signal.SIGKILL)
until(lambda: all(one.resource_id != info.resource_id for one in overview().task_managers))
piece = ask(manager.read_task_manager_log_file(info.resource_id, name + ".out", 0, 7))
tell(dead=sorted(outputs(info.resource_id)), content=piece.content.decode())
try:
    client.get_job_execution_result().result()
except Exception:
    pass
"""


@pytest.fixture(
    params=[
        pytest.param("local[4]", marks=pytest.mark.repetition("the same on a standalone cluster")),
        pytest.param(
            "local-cluster[2,2,1024]",
            marks=pytest.mark.repetition("the same on a standalone cluster"),
        ),
        "standalone",
    ]
)
def master(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The options of a master; executors of a standalone one write their standard error to files of Spark's."""
    if request.param != "standalone":
        yield "--master", request.param
        return
    cluster = StandaloneCluster(tmp_path / "cluster", new_mark(), cores_per_worker=3)
    try:
        yield cluster.options
    finally:
        cluster.end()


def test_prints_and_logs_land_in_files_of_their_process_and_at_the_client(
    tmp_path: Path, started: list[Program], master: tuple[str, ...]
) -> None:
    logs = tmp_path / "logs"
    options = ("-D", f"env.log.dir={logs}", "-D", "headrace.log.format=json")
    program = headrace_run(tmp_path, PRINTING, *master, *options, arguments=("STREAMING:2",))
    started.append(program)
    assert program.wait() == 0, program.report()
    (folder,) = logs.iterdir()
    outs = {path.name: path.read_text() for path in folder.glob("taskmanager-*.out")}
    assert len(outs) == 2
    said = sorted("".join(outs.values()).splitlines())
    numbers = range(10)
    complained = {f"complained {number}" for number in numbers}
    assert complained | {f"said {number}" for number in numbers} <= set(said)
    at_client = [line.rstrip("\n") for line in program.out]
    rows = {line for line in at_client if line.startswith(("1> ", "2> ")) and "said" not in line}
    assert {row.partition("> ")[2] for row in rows} == {str(number) for number in numbers}
    assert rows <= set(said), "a print sink's number is part of the line in the file, too"
    shown = (folder / "jobmanager.out").read_text().splitlines()
    assert sorted(shown) == sorted(line for line in at_client if line in shown)
    records = [
        json.loads(line)
        for path in folder.glob("taskmanager-*.log")
        for line in path.read_text().splitlines()
    ]
    logged = {one["message"]: one for one in records if one["logger"] == "mine"}
    assert set(logged) == {f"logged {number}" for number in numbers}
    assert logged["logged 3"]["thread"].startswith("Map -> Sink: Print to Std. Out (")
    driver = (folder / "jobmanager.log").read_text()
    assert "job printing (" in driver and "is FINISHED" in driver
    assert "is FINISHED" not in "".join(program.err), "the terminal shows no more than before"


def test_at_the_client_prints_logs_and_a_print_sink_name_their_subtask_in_both_modes(
    tmp_path: Path, started: list[Program]
) -> None:
    jobs = ("STREAMING:1", "STREAMING:2", "BATCH:2")
    program = headrace_run(tmp_path, PRINTING, "--master", "local[4]", arguments=jobs)
    started.append(program)
    assert program.wait() == 0, program.report()
    alone, streamed, batch = ([str(n) for n in range(at, at + 10)] for at in (0, 10, 20))
    numbers = [*alone, *streamed, *batch]
    lines = [line.rstrip("\n").rpartition("> ") for line in program.out]
    assert sorted(text for _, _, text in lines) == sorted(
        [*numbers, *(f"said {number}" for number in numbers)]
    )
    by_text = {text: front for front, _, text in lines}
    assert (
        {by_text[number] for number in alone} == {by_text[f"said {one}"] for one in alone} == {""}
    )
    for job in (streamed, batch):
        assert {by_text[number] for number in job} == {"1", "2"}
        assert {by_text[f"said {number}"] for number in job} == {"1", "2"}
    assert all(by_text[f"said {number}"] == by_text[number] for number in batch)
    # Workers and the driver write to one standard error: what one prints in parts may break a line of another.
    found = [LOGGED.fullmatch(line.rstrip("\n")) for line in program.err]
    records = {(one[1], one[2]) for one in found if one}
    assert {subtask for subtask, number in records if number in alone} == {"1"}
    assert {subtask for subtask, number in records if number in streamed} == {"1", "2"}
    assert {number for _, number in records} <= set(numbers)


def test_the_files_of_a_task_manager_that_was_killed_can_be_read_and_a_living_one_is_looked_into(
    tmp_path: Path, started: list[Program]
) -> None:
    facts = tmp_path / "facts"
    program = headrace_run(tmp_path, WATCHED, "--master", "local[4]", arguments=(str(facts),))
    started.append(program)
    assert program.wait() == 0, program.report()
    living, dead = map(json.loads, facts.read_text().splitlines())
    folder = Path(str(living["folder"]))
    assert living["mode"] == "0o700"
    assert {"jobmanager.log", "jobmanager.out"} <= set(living["files"])
    assert living["cores"] >= 1 and living["memory"] > 1 << 28
    assert living["subtasks"] == [0, 1]
    assert 0 < living["on_cpu"] <= living["value"]
    assert any(str(name).startswith("__main__.work:") for name in living["frames"])
    assert "headrace-control" in living["threads"]
    (out, log) = sorted(dead["dead"], reverse=True)
    assert (out[-4:], log[-4:]) == (".out", ".log")
    assert dead["content"] == "worked\n"
    assert not folder.exists(), "it goes with the cluster"
