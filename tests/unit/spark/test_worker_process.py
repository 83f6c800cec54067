"""What a TaskManager's process takes from Spark and leaves behind: nothing."""

import os
import subprocess
import sys
from pathlib import Path

from headrace.spark.worker_process import (
    routable_address,
    scratch_directory,
    socket_directory,
    sweep,
)


def test_the_scratch_directory_lies_where_spark_says_and_goes_at_the_end(tmp_path: Path) -> None:
    with scratch_directory({"SPARK_LOCAL_DIRS": f"{tmp_path},elsewhere"}) as scratch:
        assert scratch.parent == tmp_path
        (scratch / "spilled").write_text("x")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_worker_left_is_swept_by_the_next_one(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f"headrace-tm-{ended.pid}").mkdir()
    (tmp_path / f"headrace-tm-{os.getpid()}").mkdir()
    (tmp_path / "blockmgr-1").mkdir()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "blockmgr-1",
        f"headrace-tm-{os.getpid()}",
    ]


def test_a_long_scratch_path_has_no_unix_sockets() -> None:
    assert socket_directory(Path("/short")) == Path("/short")
    assert socket_directory(Path("/" + 100 * "x")) is None


def test_the_address_towards_a_local_driver_is_the_loopback_one() -> None:
    assert routable_address("127.0.0.1") == "127.0.0.1"
