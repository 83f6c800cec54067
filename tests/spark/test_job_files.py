"""Files of jobs in a session on a Spark cluster whose workers share a host: made once, used by all, gone afterwards."""

import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from testkit.waiting import wait_until
from testkit.wheels import wheel
from tests.spark.commands import HEADRACE, NO_UI, Commands
from tests.spark.java_options import settings_of_executors
from tests.spark.programs import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MASTER: Final = "local-cluster[2,2,1024]"
TASK_MANAGERS: Final = 3
"""More than fit onto one of the two executors."""
MARK: Final = b"content-of-a-job-alone"
NO_REGISTRY: Final = {
    "PIP_CONFIG_FILE": "/dev/null",
    # Nobody listens there.
    "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
    "PIP_RETRIES": "0",
}

PROGRAM: Final = """
import json, os, sys
from pathlib import Path
from headrace.common import Types
from headrace.datastream import MapFunction, StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(3)
match sys.argv[1]:
    case "all":
        env.add_python_file("rules.py")
        env.add_python_file("pricing")
        env.set_python_requirements("requirements.txt", "wheels")
        env.add_python_archive("model.tar.gz", "model")
        env.register_cached_file("rates.csv", "rates")
    case "registry":
        env.set_python_requirements("requirements.txt")
    case "damaged":
        env.add_python_archive("damaged.tar.gz", "model")


class Read(MapFunction):
    def open(self, runtime_context):
        files = runtime_context.get_distributed_cache()
        self.rates = Path(files.get_file("rates")).read_text()
        self.model = (Path(files.get_file("model")) / "weights.txt").read_text()

    def map(self, value):
        import headrace_test_coins, rules
        from pricing.limits import LIMIT
        found = {
            "value": rules.twice(value), "coins": headrace_test_coins.price(value), "limit": LIMIT,
            "rates": self.rates, "model": self.model, "process": os.getpid(), "executor": os.getcwd(),
            "rules": rules.__file__, "coins_file": headrace_test_coins.__file__,
        }
        return json.dumps(found)


function = Read() if sys.argv[1] == "all" else str
numbers = env.from_collection([1, 2, 3], type_info=Types.LONG())
with numbers.map(function, output_type=Types.STRING()).execute_and_collect() as rows:
    print("FOUND", json.dumps(sorted(rows)))
"""


@pytest.fixture
def commands(tmp_path: Path, started: list[Program]) -> Commands:
    return Commands(tmp_path, started)


def write_files(folder: Path) -> None:
    """Write the program, and the files that it names."""
    (folder / "files.py").write_text(PROGRAM)
    (folder / "rules.py").write_text("def twice(n): return 2 * n\n")
    (folder / "pricing").mkdir()
    (folder / "pricing" / "__init__.py").touch()
    (folder / "pricing" / "limits.py").write_text("LIMIT = 7\n")
    (folder / "rates.csv").write_bytes(MARK)
    (folder / "weights.txt").write_bytes(MARK)
    with tarfile.open(folder / "model.tar.gz", "w:gz") as packed:
        packed.add(folder / "weights.txt", "weights.txt")
    content = (folder / "model.tar.gz").read_bytes()
    (folder / "damaged.tar.gz").write_bytes(content[: len(content) // 2])
    wheel(folder / "wheels", "headrace_test_coins", "def price(n): return f'{n} coins'\n")
    (folder / "requirements.txt").write_text("headrace_test_coins==1.0\n")


def marked_files(folder: Path) -> list[Path]:
    """Files of the cluster that hold what the job has brought."""
    return [
        file
        for place in (folder / "tmp", folder / "spark-home" / "work")
        for file in place.rglob("*")
        if file.is_file() and file.stat().st_size < 100_000 and MARK in file.read_bytes()
    ]


@pytest.mark.long
def test_files_of_a_job_are_made_once_on_a_host_of_two_workers_and_gone_with_the_job(
    commands: Commands, tmp_path: Path
) -> None:
    write_files(tmp_path)
    options = ("--master", MASTER, *settings_of_executors(MASTER), *NO_UI)
    session = commands.begin(
        HEADRACE, "cluster", "start", "--name", "files", *options, **NO_REGISTRY
    )
    assert session.wait(150) == 0, session.report()

    [said] = [
        line
        for line in commands("run", "--cluster", "files", "files.py", "all").splitlines()
        if "FOUND" in line
    ]
    found: list[dict[str, Any]] = [
        json.loads(row) for row in json.loads(said.removeprefix("FOUND "))
    ]
    assert sorted((one["value"], one["coins"]) for one in found) == [
        (2, "1 coins"), (4, "2 coins"), (6, "3 coins"),
    ]  # fmt: skip
    for one in found:
        assert (one["limit"], one["rates"], one["model"]) == (7, MARK.decode(), MARK.decode())
        # What travelled, and not what lies where the program was started.
        assert "headrace-artifacts-" in one["rules"] and "headrace-artifacts-" in one["coins_file"]
    assert len({one["process"] for one in found}) == TASK_MANAGERS
    assert len({one["executor"] for one in found}) == 2

    made, met = Counter[str](), Counter[str]()
    for log in (tmp_path / "home" / "logs").rglob("taskmanager*.log"):
        for line in log.read_text().splitlines():
            name = line.partition(": '")[2].partition("'")[0]
            made[name] += "was fetched to this host" in line
            met[name] += "is already on this host" in line
    files = {"rates", "model", "rules.py", "pricing", "requirements", "packages"}
    assert {name: made[name] for name in files} == dict.fromkeys(files, 1)
    assert {name: met[name] for name in files} == dict.fromkeys(files, TASK_MANAGERS - 1)

    wait_until(
        lambda: not list((tmp_path / "tmp").glob("headrace-artifacts-*")),
        60,
        "the deletion of the job's files",
    )
    wait_until(lambda: not marked_files(tmp_path), 60, "the deletion of the job's blobs")

    failed = commands.begin(HEADRACE, "run", "--cluster", "files", "files.py", "registry")
    assert failed.wait() == 1
    assert "out of reach of the workers, ship the packages with the job" in "".join(failed.err)
    failed = commands.begin(HEADRACE, "run", "--cluster", "files", "files.py", "damaged")
    assert failed.wait() == 1
    told = "".join(failed.err)
    assert "'damaged.tar.gz' of the job cannot be unpacked: it is damaged" in told
    assert "pack it again and submit the job again" in told
    commands("cluster", "stop")
    for left in (tmp_path / "tmp").glob("headrace-artifacts-*"):
        # Of a worker that was killed while it waited for pip; the next one on the host would delete it.
        assert all(each.suffix == ".lock" or each.name.startswith(".") for each in left.iterdir())
        shutil.rmtree(left)
    session.assert_nothing_is_left()
