"""Staging folders of writers that are killed: the lock on them goes with the process, without anybody's doing."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from headrace.connectors.files.sink.staging import QUIET_MS, StagingFolder, sweep_abandoned

pytestmark = pytest.mark.integration

WRITER = """
import sys
from pyarrow import fs
from headrace.connectors.files.sink.staging import StagingLock
lock = StagingLock(fs.LocalFileSystem(), sys.argv[1])
lock.hold()
print('held', flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_killed_lets_go_of_its_folder(tmp_path: Path) -> None:
    local: Any = fs.LocalFileSystem()
    own, other = (StagingFolder(owner * 16, 0, 0, "1" * 16) for owner in "ab")
    folder = tmp_path / other.name
    folder.mkdir()
    (folder / "x.inprogress").touch()
    in_an_hour_ms = time.time_ns() // 1_000_000 + QUIET_MS + 60_000
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        sweep_abandoned(local, str(tmp_path), own, in_an_hour_ms)
        assert (folder / "x.inprogress").exists()
        process.kill()
        process.wait(30)
    sweep_abandoned(local, str(tmp_path), own, in_an_hour_ms)
    assert not folder.exists()
