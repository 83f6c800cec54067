"""Programs in processes of their own, whose jobs run on the cluster of this process, of which they know its REST."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import RestClusterClient
from headrace.core.lifecycle import JobStatus
from headrace.rest.client import RestClient
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.architecture.floor_plan import ROOT
from tests.integration.programs.gated import GATES, Gate
from tests.integration.rest.counting_program import SETTINGS

pytestmark = pytest.mark.integration
COMMAND = (sys.executable, "-m", "tests.integration.rest.remote_program")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        settings = SETTINGS | {"web.submit.enable": "true", "parallelism.default": "2"}
        with MiniClusterExecutor(slot_count=4, settings=settings) as executor:
            yield executor.rest_address


def client(*arguments: str) -> Any:
    """Run a program, and return what it found."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["loaded"] == [], "a client needs none of these"
    return found["answer"]


def test_records_of_a_job_are_collected_by_the_process_that_submitted_it(address: str) -> None:
    assert client("collect", address) == [n * n for n in range(100)]


def test_a_big_collection_travels_as_a_blob(address: str) -> None:
    assert client("run_big", address) == 3_000


def test_execute_waits_for_the_end_of_the_job(address: str) -> None:
    assert client("execute", address)["status"] == "FINISHED"


def test_counters_of_functions_are_summed_in_the_result_that_another_process_gets(
    address: str,
) -> None:
    # Over both of its subtasks.
    assert client("accumulate", address) == [{"count.multiples": 34}] * 2


def test_a_failed_job_names_the_users_line_in_the_clients_process(address: str) -> None:
    name, text = client("fail", address)
    assert name == "JobExecutionError"
    assert "7 is not wanted" in text and "remote_program.py" in text


def test_a_job_is_attached_to_by_its_id_and_steered_from_another_process(
    address: str, tmp_path: Path
) -> None:
    GATES["steered"] = Gate(100)
    job = client("submit_endless", address, "steered", str(tmp_path))
    found = client("steer", address, job, str(tmp_path))
    assert found["status"] == "RUNNING"
    assert job in found["jobs"]
    assert found["vertices"] == 2
    assert {"count", "numbers", "print"} <= set(found["operators"])
    assert found["counts"] == [[key, 25] for key in range(4)]
    assert list(found["accumulators"].values()) == [34]
    assert (found["checkpoint"], found["committed"], found["result"]) == (1, True, True)
    assert Path(found["savepoint"].removeprefix("file:"), "_metadata").exists()
    assert Path(found["stopped"].removeprefix("file:"), "_metadata").exists()
    assert found["unknown operator"][0] == "UnknownOperatorError"
    assert found["over"][0] == "JobAlreadyEndedError"


def test_a_job_is_cancelled_by_a_process_that_did_not_submit_it(
    address: str, tmp_path: Path
) -> None:
    GATES["cancelled"] = Gate(0)
    job = client("submit_endless", address, "cancelled", str(tmp_path))
    assert client("cancel", address, job)[0] == "JobCancelledError"


def headrace_run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `headrace run` in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "headrace", "run", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


WITH_A_HELPER = """
import sys
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment
from word_lengths import length

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(sys.argv[1:], type_info=Types.STRING()).map(length, output_type=Types.INT()).print()
print("before", __name__)
env.execute("lengths")
print("after")
"""
SUBMITTED = r"Job has been submitted with JobID ([0-9a-f]{32})"
FINISHED = r"Program execution finished\nJob with JobID \1 has finished\.\nJob Runtime: \d+ ms\n\n"


@pytest.mark.parametrize("named", [("-pym", "wordjob"), ("-py", "wordjob.py")], ids=["pym", "py"])
@pytest.mark.parametrize("detached", [(), ("-d",)], ids=["attached", "detached"])
def test_options_of_flink_run_bring_a_program_to_a_cluster_and_its_lines_name_the_job(
    address: str, tmp_path: Path, detached: tuple[str, ...], named: tuple[str, str]
) -> None:
    folder, helpers = tmp_path / "program", tmp_path / "elsewhere"
    folder.mkdir()
    helpers.mkdir()
    (folder / "wordjob.py").write_text(WITH_A_HELPER)
    (helpers / "word_lengths.py").write_text("def length(word):\n    return len(word)\n")
    files = ("-pyfs", "../elsewhere/word_lengths.py")
    place = ("-t", "remote", "-m", address.removeprefix("http://"))
    done = headrace_run(folder, *detached, *place, *files, *named, "to", "be")
    assert done.returncode == 0, done.stderr
    end = "" if detached else FINISHED
    found = re.fullmatch(f"before __main__\n{SUBMITTED}\n{end}after\n", done.stdout)
    assert found is not None, done.stdout
    rest = RestClient.of(find_connection(None, print))
    wait_until(lambda: rest.get(f"/jobs/{found[1]}/status")["status"] == "FINISHED", what="the end")
    assert rest.get(f"/jobs/{found[1]}")["name"] == "lengths"


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [("raise ValueError('no')", 1, "ValueError: no"), ("sys.exit(3)", 3, "")],
    ids=["exception", "exit"],
)
def test_the_exit_code_is_that_of_the_program(
    address: str, tmp_path: Path, end: str, code: int, said: str
) -> None:
    program = tmp_path / "ends.py"
    program.write_text(f"import sys\n{end}\n")
    done = headrace_run(tmp_path, "-m", address.removeprefix("http://"), "-py", str(program))
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


LEAVES_A_JOB = """
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2], type_info=Types.LONG()).map(lambda n: n // {divisor}).print()
print("of the program")
env.execute_async("halves").get_job_execution_result().result()
"""


@pytest.mark.parametrize(
    ("divisor", "code", "state"), [(2, 0, "FINISHED"), (0, 1, "FAILED")], ids=["ends", "fails"]
)
def test_headrace_run_as_json_tells_of_its_jobs_in_one_document(
    address: str, tmp_path: Path, divisor: int, code: int, state: str
) -> None:
    program = tmp_path / "halves.py"
    program.write_text(LEAVES_A_JOB.format(divisor=divisor))
    done = headrace_run(tmp_path, "--json", "-m", address.removeprefix("http://"), str(program))
    told = json.loads(done.stdout)
    [job] = told["jobs"]
    assert (job["name"], job["state"], told["exit-code"]) == ("halves", state, code)
    assert done.returncode == code
    assert status_of(address, job["job-id"]).name == state
    assert ["ZeroDivisionError" in error for error in told["errors"]] == [True] * code
    assert "of the program" in done.stderr


def status_of(address: str, job: str) -> JobStatus:
    with RestClusterClient(address) as cluster:
        return cluster.get_job_status(job)


def test_a_job_that_is_tied_to_its_client_is_cancelled_when_that_is_killed(address: str) -> None:
    GATES["killed"] = Gate(0)
    with subprocess.Popen(
        [*COMMAND, "wait_with_a_job", address, "killed"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        job = process.stdout.readline().strip()
        process.kill()
    wait_until(lambda: status_of(address, job) is JobStatus.CANCELED, what="the end of the job")


def test_a_job_that_is_tied_to_its_client_ends_with_it(address: str) -> None:
    GATES["left"] = Gate(0)
    job = client("leave_a_job", address, "left")
    wait_until(lambda: status_of(address, job).is_terminal_state(), what="the end of the job")
    assert status_of(address, job) is JobStatus.CANCELED


def test_an_unknown_job_is_the_same_error_as_in_the_cluster(address: str) -> None:
    assert client("ask_for_nobody", address)[0] == "UnknownJobError"
