"""Scratch folders of killed processes go when the next one is made; those of others, and of the living, stay."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from headrace.core.process.scratch_folder import make_scratch_folder, remove_scratch_folder

HOLDS = """
import sys
from pathlib import Path
from headrace.core.process.scratch_folder import make_scratch_folder
folder = make_scratch_folder("headrace-own-", Path(sys.argv[1]))
(folder / "content").write_text("left")
print(folder, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_has_left_goes_with_the_next_start(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        of_other = Path(process.stdout.readline().strip())
        own = make_scratch_folder("headrace-own-", tmp_path)
        assert (of_other / "content").exists(), "it lives"
        process.send_signal(signal.SIGKILL)
    assert of_other.exists()
    remove_scratch_folder(make_scratch_folder("headrace-other-", tmp_path))
    assert of_other.exists(), "another kind"
    second = make_scratch_folder("headrace-own-", tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([own, second])
    assert own.stat().st_mode & 0o777 == 0o700
    for folder in (own, second, second):
        remove_scratch_folder(folder)
    assert list(tmp_path.iterdir()) == []


def test_links_files_and_folders_that_were_never_held_stay(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "content").touch()
    (tmp_path / "headrace-own-link.held").symlink_to(target)
    (tmp_path / "headrace-own-file.held").touch()
    (tmp_path / "headrace-own-older").mkdir()
    remove_scratch_folder(make_scratch_folder("headrace-own-", tmp_path))
    assert (target / "content").exists()
    assert {one.name for one in tmp_path.iterdir()} == {
        "elsewhere", "headrace-own-link.held", "headrace-own-file.held", "headrace-own-older",
    }  # fmt: skip


def test_it_opens_no_more_files_than_it_has_folders(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        remove_scratch_folder(make_scratch_folder("headrace-own-", tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
