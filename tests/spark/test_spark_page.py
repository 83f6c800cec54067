"""Spark's web page, where it is switched on: what it shows of a cluster, and to whom."""

import base64
import hashlib
import hmac
import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlsplit

import pytest

from headrace.core.randomness import secret_token
from testkit.waiting import wait_until
from tests.spark.pages import answer, cluster_of
from tests.spark.programs import Program, headrace_run, start_headrace

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

KEY: Final = "spark.org.apache.spark.ui.JWSFilter.param.secretKey"
PROGRAM: Final = """
import threading
import time

from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session

def tell(was):
    while spark.sparkContext.uiWebUrl == was:
        time.sleep(0.1)
    print("PAGE", spark.sparkContext.uiWebUrl, flush=True)

spark = spark_session()
print("PAGE", spark.sparkContext.uiWebUrl, flush=True)
threading.Thread(target=tell, args=(spark.sparkContext.uiWebUrl,), daemon=True).start()
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
source = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=20)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "wells")
numbers.map(lambda n: f"NUMBER {n}", output_type=Types.STRING()).print()
env.execute("levels")
"""


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def signed_token(key: bytes) -> str:
    """A JSON web token that is signed with `key`.

    Source: RFC 7515, appendix A.1.
    """
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": "operator"})
    text = ".".join(encoded(json.dumps(part).encode()) for part in parts)
    return f"{text}.{encoded(hmac.digest(key, text.encode(), hashlib.sha256))}"


def test_the_page_shows_workers_to_whoever_has_the_key_of_its_filter_and_ends_no_job(
    tmp_path: Path, started: list[Program]
) -> None:
    key = secret_token()
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.ui.filters": "org.apache.spark.ui.JWSFilter",
        KEY: base64.urlsafe_b64encode(key).decode(),
    }
    given = [word for pair in settings.items() for word in ("-D", "=".join(pair))]
    program = headrace_run(tmp_path, PROGRAM, "--master", "local[2]", *given)
    started.append(program)
    program.wait_for_line("NUMBER 3")
    [page] = [line.split()[1] for line in program.out if line.startswith("PAGE ")]
    assert urlsplit(page).hostname in ("127.0.0.1", "localhost"), page
    for path in ("/jobs/", "/environment/", "/executors/", "/api/v1/applications"):
        for token in ("", signed_token(secret_token())):
            status, _ = answer(page + path, token)
            assert status == 403, (path, bool(token))
    token = signed_token(key)

    def shown(path: str) -> Any:
        status, text = answer(f"{page}/api/v1/applications{path}", token)
        assert status == 200, text
        return json.loads(text)

    [application] = shown("")
    workers = shown(f"/{application['id']}/jobs?status=running")
    assert len(workers) == 1, workers
    description = workers[0]["description"]
    assert description.startswith("TaskManager ") and "job 'levels' (Source: wells" in description
    assert "dashboard http://127.0.0.1:" in description
    status, jobs = answer(f"{page}/jobs/", token)
    assert status == 200 and description.split(";")[0] in jobs
    properties = dict(shown(f"/{application['id']}/environment")["sparkProperties"])
    assert properties["spark.ui.filters"] == settings["spark.ui.filters"]
    assert "redacted" in properties[KEY], "the key itself is shown to nobody"
    # Nobody ends a worker here: the dashboard does, which ends jobs in order.
    for data in (None, b""):
        status, _ = answer(f"{page}/jobs/job/kill/?id={workers[0]['jobId']}", token, data)
        assert status >= 400
    seen = len(program.out)
    wait_until(lambda: len(program.out) > seen + 20, 60, "the job goes on")
    program.interrupt()
    assert program.wait(60) == 130, program.report()
    program.assert_nothing_is_left()


def test_the_page_starts_behind_the_dashboard_when_it_is_asked_for_where_nothing_is_said_of_it(
    tmp_path: Path, started: list[Program]
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    home = tmp_path / "home"
    events = tmp_path / "events"
    events.mkdir()
    settings = (
        *("-D", "spark.eventLog.enabled=true"),
        *("-D", f"spark.eventLog.dir={events}"),
        *("-D", "spark.eventLog.compress=false"),
    )
    program = start_headrace(
        tmp_path,
        *("run", "--master", "local[2]", *settings, "program.py"),
        environment={"HEADRACE_HOME": str(home)},
    )
    started.append(program)
    program.wait_for_line("NUMBER 3")
    connection = cluster_of(home).connection
    assert answer(f"{connection.address}/spark/", "")[0] == 401
    assert [line for line in program.out if line.startswith("PAGE ")] == ["PAGE None\n"]
    # Spark leads from its first page to that of its jobs.
    status, jobs = answer(f"{connection.address}/spark/", connection.token)
    assert status == 200 and "TaskManager " in jobs and '"/spark/static/' in jobs
    assert [jobs.count(f'href="/spark/{tab}/"') for tab in ("SQL", "StreamingQuery")] == [1, 1]
    [script, *_] = re.findall(r'src="(/spark/static/[^"]+\.js)"', jobs)
    assert answer(connection.address + script, connection.token)[0] == 200
    program.wait_for_line("PAGE http")
    [_, page] = [line.split()[1] for line in program.out if line.startswith("PAGE ")]
    assert urlsplit(page).hostname in ("127.0.0.1", "localhost"), page
    assert answer(f"{page}/jobs/", "")[0] == 403
    api = f"{connection.address}/spark/api/v1/applications"
    [application] = json.loads(answer(api, connection.token)[1])
    status, environment = answer(f"{api}/{application['id']}/environment", connection.token)
    assert status == 200
    assert KEY not in dict(json.loads(environment)["sparkProperties"]), "the page's alone"

    def queries() -> list[Any]:
        return json.loads(answer(f"{api}/{application['id']}/sql", connection.token)[1])

    wait_until(lambda: len(queries()) == 1, 60, "the TaskManager's query")
    [query] = queries()
    assert query["status"] == "RUNNING" and query["description"].startswith("TaskManager ")

    def figures() -> dict[str, str]:
        page = f"{connection.address}/spark/SQL/execution/?id={query['id']}"
        status, shown = answer(page, connection.token)
        assert status == 200, shown
        named = re.findall(r'"name":"([^"]+)","value":"([^"]+)"', html.unescape(shown))
        return {name: value.rpartition("\\n")[2].replace(",", "") for name, value in named}

    # Of a single reading Spark shows no least and most.
    wait_until(lambda: figures().get("running tasks") == "(1 1 1 (driver))", 60, "two looks")
    wait_until(lambda: int(figures().get("records received", 0)) > 100, 60, "records grow")
    now = figures()
    assert int(now["processor time in ms"]) > 0
    assert re.match(r"\(\d+ \d+ \d+ \(driver\)\)", now["resident memory in MiB"]), now
    program.interrupt()
    assert program.wait(60) == 130, program.report()
    program.assert_nothing_is_left()
    # Where Spark's history server reads them later.
    [log] = [file for file in events.rglob("*") if file.is_file() and "appstatus" not in file.name]
    told = [json.loads(line) for line in log.read_text().splitlines()]
    begun = {one["executionId"]: one for one in of_event(told, "SparkListenerSQLExecutionStart")}
    ended = {one["executionId"]: one for one in of_event(told, "SparkListenerSQLExecutionEnd")}
    assert begun.keys() == ended.keys()
    [job] = begun.keys() - {query["id"]}
    assert begun[job]["description"].startswith("records of STREAMING job 'levels' (")
    assert ended[job]["errorMessage"] == "cancelled"
    metrics = begun[query["id"]]["sparkPlanInfo"]["metrics"]
    names = {one["accumulatorId"]: one["name"] for one in metrics}
    updates = of_event(told, "SparkListenerDriverAccumUpdates")
    received = [
        number
        for one in updates
        for accumulator, number in one["accumUpdates"]
        if names.get(accumulator) == "records received"
    ]
    assert len(received) > 1 and sum(received) >= int(now["records received"])


def of_event(events: list[Any], name: str) -> list[Any]:
    return [one for one in events if one["Event"].endswith(f".{name}")]


QUERIES: Final = """
import sys, time
from headrace.core.config import Settings
from headrace.spark.session.session import host_session

session = host_session(Settings({"headrace.spark.master": "local[2]"}))
rates = session.spark.readStream.format("rate").load()

def query(name):
    started = rates.writeStream.format("noop").queryName(name).start()
    while not started.recentProgress:
        time.sleep(0.1)
    return started

queries = [query("begun before the page")]
session.spark.range(10).selectExpr("sum(id) AS summed_before").collect()
address = session.page.address()
assert session.page.address() == address == session.context.uiWebUrl, "it starts once"
queries.append(query("begun behind it"))
print(address, session.page.key, flush=True)
sys.stdin.readline()
for started in queries:
    started.stop()
session.stop()
"""


def test_a_page_that_starts_late_shows_what_was_before(tmp_path: Path) -> None:
    (tmp_path / "queries.py").write_text(QUERIES)
    with subprocess.Popen(
        [sys.executable, "queries.py"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        page, key = program.stdout.readline().split()
        token = signed_token(base64.urlsafe_b64decode(key))
        try:
            jobs = answer(f"{page}/jobs/", token)[1]
            assert [jobs.count(f'href="/{tab}/"') for tab in ("SQL", "StreamingQuery")] == [1, 1]
            [application] = json.loads(answer(f"{page}/api/v1/applications", token)[1])
            queries = f"{page}/api/v1/applications/{application['id']}/sql"
            assert "summed_before" in answer(queries, token)[1]
            shown = answer(f"{page}/StreamingQuery/", token)[1]
            for name in ("begun before the page", "begun behind it"):
                row = re.search(
                    rf"<td>{name}</td>.*?statistics/\?id=([0-9a-f-]+)", shown, re.DOTALL
                )
                assert row is not None, shown
                statistics = answer(f"{page}/StreamingQuery/statistics/?id={row[1]}", token)[1]
                assert "input-rate-timeline" in statistics and "No visualization" not in statistics
        finally:
            program.communicate("end\n", timeout=120)
        assert program.returncode == 0
        with pytest.raises(URLError):
            answer(page, token)
