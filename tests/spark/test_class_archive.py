"""`headrace warm-up`: Spark's JVM takes its classes from the archive, and starts as ever where that is no good."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

HEADRACE = Path(sys.executable).with_name("headrace")
PROGRAM = """
from headrace.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).map(lambda number: number * 10).print()
env.execute("tens")
"""


def headrace(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(HEADRACE), *arguments],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def shared_classes(cache: Path, directory: Path) -> set[str]:
    """Run the program; return which classes came out of an archive."""
    program, log = directory / "tens.py", directory / "loaded"
    program.write_text(PROGRAM)
    log_loads = f"-D spark.driver.extraJavaOptions=-Xlog:class+load:file={log}:none"
    ran = headrace(cache, "run", "-p", "1", *log_loads.split(), str(program))
    assert (ran.returncode, ran.stdout.split()) == (0, ["10", "20"]), ran.stderr
    assert "archive" not in ran.stderr
    return {
        line.partition(" ")[0]
        for line in log.read_text().splitlines()
        if "source: shared objects file" in line
    }


def test_spark_s_classes_come_from_the_archive_until_it_is_damaged_or_removed(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache"
    made = headrace(cache, "warm-up")
    assert made.returncode == 0, made.stderr
    archives = list((cache / "headrace").iterdir())
    assert [one.suffix for one in archives] == [".jsa"]
    assert str(archives[0]) in made.stdout
    spark_s_own = {"org.apache.spark.SparkContext", "org.apache.spark.api.python.PythonRDD"}
    assert spark_s_own <= shared_classes(cache, tmp_path)
    archives[0].chmod(0o600)
    archives[0].write_bytes(b"damaged")
    assert not spark_s_own & shared_classes(cache, tmp_path)
    removed = headrace(cache, "warm-up", "--remove")
    assert (removed.returncode, list((cache / "headrace").iterdir())) == (0, [])
    assert removed.stdout.startswith("1 archive")
