"""Programs that a client uploads over REST and has run: each in a process of its own, on the cluster that took it."""

import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from headrace.rest.client import RestClient
from headrace.rest.client_errors import RestRefusedError
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.integration.rest.counting_program import SETTINGS, await_running, completed
from tests.integration.rest.uploads import ended, send_program
from tests.unit.rest.golden_shapes import assert_golden

pytestmark = pytest.mark.integration

PROGRAM = """\
import os, sys
from headrace import StreamExecutionEnvironment, Types
from headrace.common import Configuration
env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection(list(range(int(sys.argv[1]))), type_info=Types.LONG())
numbers.map(lambda n: n + 1, output_type=Types.LONG()).print()
env.execute(f"uploaded, not by {os.getpid()}")
"""
ENDLESS = """\
from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(60_000)
source = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=100)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
numbers.map(lambda n: n, output_type=Types.LONG()).filter(lambda n: False).print()
env.execute("endless")
"""
IN_ARCHIVE = """\
from headrace import StreamExecutionEnvironment, Types
from rules_of_the_archive import double
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3], type_info=Types.LONG()).map(double, output_type=Types.LONG()).print()
env.execute("archived")
"""


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        # Tasks run in this process, so that archives come onto its path.
        patch.setattr(sys, "path", list(sys.path))
        settings = SETTINGS | {
            "web.submit.enable": "true",
            "web.upload.dir": str(tmp_path_factory.mktemp("uploads")),
            "parallelism.default": "1",
        }
        with MiniClusterExecutor(slot_count=4, settings=settings):
            yield RestClient.of(find_connection(None, print))


def upload(rest: RestClient, name: str, content: bytes) -> str:
    """Upload a file, and return its id."""
    assert_golden("POST /jars/upload", send_program(rest, name, content))
    listed = rest.get("/jars")
    assert_golden("GET /jars", listed)
    return listed["files"][0]["id"]


def test_a_program_is_planned_and_run_with_its_arguments_in_another_process(
    rest: RestClient,
) -> None:
    jar = upload(rest, "numbers.py", PROGRAM.encode())
    planned = rest.post(f"/jars/{jar}/plan", {"programArgsList": ["3"], "parallelism": 2})
    assert_golden("POST /jars/{jarid}/plan", planned)
    plan = planned["plan"]
    assert {node["parallelism"] for node in plan["nodes"]} == {1, 2}
    before = len(rest.get("/jobs")["jobs"])
    wanted = "0c" * 16
    answer = rest.post(f"/jars/{jar}/run", {"programArgsList": ["3"], "jobId": wanted})
    assert_golden("POST /jars/{jarid}/run", answer)
    assert answer == {"jobid": wanted, "applicationId": wanted}
    result = ended(rest, wanted)
    assert result["application-status"] == "SUCCEEDED"
    assert result["name"].startswith("uploaded")
    assert str(os.getpid()) not in result["name"]
    assert len(rest.get("/jobs")["jobs"]) == before + 1, "the plan has run no job"


def test_a_program_is_planned_by_get_and_deleted(rest: RestClient) -> None:
    jar = upload(rest, "numbers.py", PROGRAM.encode())
    planned = rest.get(f"/jars/{jar}/plan?programArg=3&parallelism=2")
    assert_golden("GET /jars/{jarid}/plan", planned)
    assert {node["parallelism"] for node in planned["plan"]["nodes"]} == {1, 2}
    assert_golden("DELETE /jars/{jarid}", json.loads(rest.exchange("DELETE", f"/jars/{jar}")))
    assert jar not in [file["id"] for file in rest.get("/jars")["files"]]


def test_a_program_goes_on_from_a_savepoint(rest: RestClient, tmp_path: Path) -> None:
    jar = upload(rest, "endless.py", ENDLESS.encode())
    first = rest.post(f"/jars/{jar}/run")["jobid"]
    await_running(rest, f"/jobs/{first}")
    stop = rest.post(f"/jobs/{first}/stop", {"targetDirectory": str(tmp_path), "drain": False})
    path = f"/jobs/{first}/savepoints/{stop['request-id']}"
    savepoint = completed(rest, path)["location"]
    query = urlencode({"savepointPath": savepoint, "allowNonRestoredState": "false"})
    second = rest.post(f"/jars/{jar}/run?{query}")["jobid"]
    checkpoints = f"/jobs/{second}/checkpoints"
    wait_until(lambda: rest.get(checkpoints)["latest"]["restored"] is not None)
    restored = rest.get(checkpoints)["latest"]["restored"]
    assert (restored["external_path"], restored["is_savepoint"]) == (savepoint, True)
    rest.exchange("PATCH", f"/jobs/{second}?mode=cancel")
    assert ended(rest, second)["application-status"] == "CANCELED"


def test_a_module_of_an_archive_is_run_and_workers_find_the_others(
    rest: RestClient, tmp_path: Path
) -> None:
    archive = tmp_path / "jobs.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("main_of_the_archive.py", IN_ARCHIVE)
        out.writestr("rules_of_the_archive.py", "def double(n):\n    return 2 * n\n")
    jar = upload(rest, "jobs.zip", archive.read_bytes())
    body = {"entryClass": "main_of_the_archive"}
    begun = rest.post(f"/jars/{jar}/run-application", body)
    assert_golden("POST /jars/{jarid}/run-application", begun)
    job = begun["applicationid"]
    assert ended(rest, job)["application-status"] == "SUCCEEDED"


def test_flinks_python_driver_is_taken_with_its_arguments(rest: RestClient) -> None:
    jar = upload(rest, "numbers.py", PROGRAM.encode())
    body = {
        "entryClass": "org.apache.flink.client.python.PythonDriver",
        "programArgsList": ["-py", "numbers.py", "5"],
    }
    job = rest.post(f"/jars/{jar}/run", body)["jobid"]
    assert ended(rest, job)["application-status"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise ValueError('nobody wants this')", "nobody wants this"),
        ("print('only a word')", "never called env.execute"),
    ],
)
def test_a_program_that_comes_to_no_job_is_an_error_with_its_last_lines(
    rest: RestClient, program: str, said: str
) -> None:
    jar = upload(rest, "broken.py", program.encode())
    with pytest.raises(RestRefusedError) as refused:
        rest.post(f"/jars/{jar}/run")
    assert refused.value.status == 400
    assert said in " ".join(refused.value.errors)
