"""Spark's history server shows programs of the past from their event logs: workers, pushed rows and BATCH stages."""

import json
import re
import socket
import urllib.request
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError

import pytest

from testkit.waiting import wait_until
from tests.spark.programs import SPARK_HOME, Program, headrace_run, start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

ROW_COUNT: Final = 1234
PROGRAM: Final = """
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
rows = env.from_dataframe(spark_session().range(0, 1234, 1, 3), name="wells")
keyed = rows.key_by(lambda row: row.id % 5, Types.LONG())
table = keyed.map(lambda row: row.id, output_type=Types.LONG()).to_arrow()
print("ROWS", table.num_rows)
"""


class History:
    """A history server of Spark's over a folder of event logs."""

    def __init__(self, folder: Path, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1/applications"
        self.folder = folder

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._base}{path}", timeout=30) as answer:
            return json.load(answer)

    def is_complete(self, application_count: int) -> bool:
        """Return whether it shows as many applications, all of which have ended."""
        try:
            applications = self.get("")
        except (URLError, ConnectionError, json.JSONDecodeError):
            # Spark adds the pages of a server that listens already one by one: until the REST API's turn, its
            # address gets the page of all applications.
            return False
        ended = [one for one in applications if one["attempts"][0]["completed"]]
        return len(ended) == application_count


def history_of(folder: Path, started: list[Program], application_count: int) -> History:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    options = f"-Dspark.history.fs.logDirectory=file:{folder} -Dspark.history.ui.port={port}"
    options += " -Dspark.history.fs.update.interval=1s"
    environment = {"SPARK_HISTORY_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [
        str(SPARK_HOME / "bin" / "spark-class"),
        "org.apache.spark.deploy.history.HistoryServer",
    ]
    started.append(start(command, folder.parent, environment))
    history = History(folder, port)
    wait_until(
        lambda: history.is_complete(application_count), 100, "applications in the history server"
    )
    return history


def metric(query: Any, node: str, name: str = "number of output rows") -> int:
    """The largest metric of this name of a query's nodes."""
    return max(
        int(one["value"].replace(",", ""))
        for each in query["nodes"]
        if node in each["nodeName"]
        for one in each["metrics"]
        if one["name"] == name
    )


def run_program(folder: Path, events: Path, started: list[Program], mode: str) -> str:
    """Run the program in a mode; return the name of its event log, in which its application's id is."""
    before = set(events.iterdir())
    options = {
        "execution.runtime-mode": mode,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
    }
    given = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    program = headrace_run(folder, PROGRAM, "--master", "local[4]", *given)
    started.append(program)
    assert program.wait(200) == 0, program.report()
    assert f"ROWS {ROW_COUNT}\n" in program.out
    [log] = set(events.iterdir()) - before
    return log.name


def path_of(history: History, log: str) -> str:
    """Return the path of a log's application."""
    [path] = [f"/{one['id']}" for one in history.get("") if one["id"] in log]
    return path


def shown_jobs(history: History, log: str) -> list[str]:
    """Look at the queries of a log's application; return what is said of its jobs."""
    path = path_of(history, log)
    jobs = history.get(f"{path}/jobs")
    queries = history.get(f"{path}/sql?details=true&planDescription=false&length=100")
    ours = [one for one in queries if any("MapInArrow" in n["nodeName"] for n in one["nodes"])]
    assert ours, [one["description"] for one in queries]
    assert max(metric(one, "Range") for one in ours) == ROW_COUNT
    assert all(one["status"] == "COMPLETED" for one in ours)
    [job] = [
        one for one in queries if re.match("records of (STREAMING|BATCH) job ", one["description"])
    ]
    assert metric(job, "Source: wells", "records sent") == ROW_COUNT
    assert metric(job, "Sink: Collect", "records received") == ROW_COUNT
    return [job.get("description", "") for job in jobs]


@pytest.mark.long
def test_programs_of_the_past_are_shown_with_their_workers_and_the_rows_of_their_queries(
    tmp_path: Path, started: list[Program]
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    streaming, batch = (
        run_program(tmp_path, events, started, mode) for mode in ("STREAMING", "BATCH")
    )
    history = history_of(events, started, 2)
    told = shown_jobs(history, streaming)
    workers = [one for one in told if "TaskManager" in one]
    assert len(workers) == 2, told
    begun = "started after attempt 1 of job 'Flink Streaming Job' (Source: wells -> "
    assert all(begun in one for one in workers), workers
    assert any("rows of" in one and "wells" in one for one in told), told
    told = shown_jobs(history, batch)
    assert not [one for one in told if "TaskManager" in one], told
    [described] = set(told)
    assert described.startswith("BATCH job 'Flink Streaming Job' (Source: wells -> "), told
    assert re.search(
        r", Sink: Collect\); dashboard http://127\.0\.0\.1:\d+/#/job/[0-9a-f]{32}$", described
    )
    path = path_of(history, batch)
    stages = history.get(f"{path}/stages")
    run = [one for one in stages if one["status"] != "SKIPPED"]
    assert {one["description"] for one in run} == {described}
    plans = [one["planDescription"] for one in history.get(f"{path}/sql?length=100")]
    assert any("Source: wells" in one and "Sink: Collect" in one for one in plans), plans
