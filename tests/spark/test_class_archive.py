"""`headrace warm-up`: Spark's JVM takes its classes from the archive, and starts as ever where that is no good."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.session.class_archive import class_archive
from headrace.spark.session.java_runtime import find_java, user_cache_directory

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


def shared_classes(cache: Path, directory: Path, *options: str) -> set[str]:
    """Run the program; return which classes came out of an archive."""
    program, log = directory / "tens.py", directory / "loaded"
    program.write_text(PROGRAM)
    log_loads = f"-D spark.driver.extraJavaOptions=-Xlog:class+load:file={log}:none"
    ran = headrace(cache, "run", "-p", "1", *log_loads.split(), *options, str(program))
    assert (ran.returncode, ran.stdout.split()) == (0, ["10", "20"]), ran.stderr
    assert "archive" not in ran.stderr
    return {
        line.partition(" ")[0]
        for line in log.read_text().splitlines()
        if "source: shared objects file" in line
    }


def store_archive(cache: Path) -> None:
    """Copy what `headrace warm-up` has stored for this user, as .ci/run has it do before; else have it store one."""
    found = user_cache_directory(os.environ)
    stored = class_archive(find_java(os.environ, found), found)
    if stored.is_file():
        (cache / "headrace").mkdir(parents=True)
        shutil.copy(stored, cache / "headrace")
    else:
        made = headrace(cache, "warm-up", "--json")
        assert made.returncode == 0, made.stderr


@pytest.mark.long
def test_spark_s_classes_come_from_the_archive_until_it_is_damaged_or_removed(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache"
    store_archive(cache)
    archives = list((cache / "headrace").iterdir())
    assert [one.suffix for one in archives] == [".jsa"]
    spark_s_own = {"org.apache.spark.SparkContext", "org.apache.spark.api.python.PythonRDD"}
    page_s_own = {"org.apache.spark.ui.WebUIPage", "org.apache.spark.ui.jobs.JobsTab"}
    with_page = ("-D", "spark.ui.enabled=true", "-D", "spark.ui.port=0")
    assert spark_s_own | page_s_own <= shared_classes(cache, tmp_path, *with_page)
    archives[0].chmod(0o600)
    archives[0].write_bytes(b"damaged")
    assert not spark_s_own & shared_classes(cache, tmp_path)
    removed = headrace(cache, "warm-up", "--remove")
    assert (removed.returncode, list((cache / "headrace").iterdir())) == (0, [])
    assert removed.stdout.startswith("1 archive")
