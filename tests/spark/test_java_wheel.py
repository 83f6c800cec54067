"""A machine without Java: Spark starts on the wheel's runtime, and nothing of the user's environment is changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

PROGRAM = """
import os
from headrace.spark.session import spark_session
spark = spark_session()
rows = spark.sparkContext.parallelize(range(10), 2).map(lambda x: x * x).sum()
print("SUM", rows, os.environ["JAVA_HOME"])
"""


def path_without_java(directory: Path) -> str:
    """A PATH with all that Spark's scripts call, and no java."""
    for name in (
        "bash",
        "sh",
        "dirname",
        "ps",
        "env",
        "uname",
        "cat",
        "ls",
        "mktemp",
        "rm",
        "nice",
    ):
        for folder in ("/usr/bin", "/bin"):
            if Path(folder, name).exists():
                (directory / name).symlink_to(Path(folder, name))
                break
    return str(directory)


def test_spark_runs_on_the_wheel_where_the_path_has_no_java(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    environment = {
        "PATH": path_without_java(tools),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "LANG": "C.UTF-8",
        "TMPDIR": os.environ.get("TMPDIR", ""),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={key: value for key, value in environment.items() if value},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SUM")]
    assert line.startswith(f"SUM 285 {tmp_path / 'cache' / 'headrace' / 'java-'}")
