"""What processes of one host learn from each other's locks: that somebody has ended, and nothing else."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from headrace.cluster.high_availability.process_lock import ProcessLock
from headrace.core.clock import ManualClock

_HOUR_MS: Final = 3_600_000
_HOLDER: Final = """
import pathlib, random, sys
from headrace.cluster.high_availability.process_lock import ProcessLock
from headrace.core.clock import SystemClock
lock = ProcessLock(random.SystemRandom(), SystemClock(), pathlib.Path(sys.argv[1]))
print(lock.name, flush=True)
sys.stdin.read()
"""


def _lock(folder: Path, seed: int = 1, *, clock: ManualClock | None = None) -> ProcessLock:
    return ProcessLock(random.Random(seed), clock or ManualClock(), folder)


def test_a_process_that_was_killed_has_ended_and_one_that_was_stopped_has_not(
    tmp_path: Path,
) -> None:
    observer = _lock(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        name = holder.stdout.readline().strip()
        assert not observer.has_ended(name)
        os.kill(holder.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
        assert not observer.has_ended(name)
        observer.remove_ended(name)
        assert (tmp_path / name).exists()
        os.kill(holder.pid, signal.SIGKILL)
    assert observer.has_ended(name)
    observer.remove_ended(name)
    assert not (tmp_path / name).exists()
    assert not observer.has_ended(name)


def test_a_lock_of_this_process_is_held_until_it_is_closed_and_leaves_no_file(
    tmp_path: Path,
) -> None:
    lock = _lock(tmp_path)
    assert lock.name
    assert (tmp_path / lock.name).stat().st_mode & 0o777 == 0o600
    assert not _lock(tmp_path, 2).has_ended(lock.name)
    lock.close()
    lock.close()
    assert not (tmp_path / lock.name).exists()


@pytest.mark.parametrize("name", ["", "../secrets", "headrace-leader-", "a" * 32])
def test_of_what_is_not_here_nothing_is_known(tmp_path: Path, name: str) -> None:
    (tmp_path.parent / "secrets").touch()
    assert not _lock(tmp_path).has_ended(name)


def _ended_like(lock: ProcessLock, digit: str) -> str:
    """Return the name that a lock could have had which was made under the same kernel."""
    return lock.name[:-32] + digit * 32


def test_a_free_file_of_the_same_kernel_is_of_a_process_that_has_ended(tmp_path: Path) -> None:
    lock = _lock(tmp_path)
    ended, of_another = _ended_like(lock, "a"), f"headrace-leader-{'0' * 12}-{'a' * 32}"
    assert not lock.has_ended(ended)
    for name in (ended, of_another):
        (tmp_path / name).touch()
    assert lock.has_ended(ended)
    assert not lock.has_ended(of_another)


def test_a_link_or_a_pipe_says_nothing(tmp_path: Path) -> None:
    lock = _lock(tmp_path)
    link, pipe = _ended_like(lock, "a"), _ended_like(lock, "b")
    (tmp_path / "elsewhere").touch()
    (tmp_path / link).symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / pipe)
    assert not lock.has_ended(link)
    assert not lock.has_ended(pipe)


def test_a_host_without_a_file_system_in_memory_has_no_lock(tmp_path: Path) -> None:
    lock = _lock(tmp_path / "absent")
    assert not lock.name
    assert not lock.has_ended(lock.name)
    lock.close()


def test_files_that_nobody_waits_for_any_more_are_removed(tmp_path: Path) -> None:
    held = _lock(tmp_path)
    left = [_ended_like(held, digit) for digit in "ab"]
    for name, modified_s in zip(left, (0, 3_000), strict=True):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (modified_s, modified_s))
    os.utime(tmp_path / held.name, (0, 0))
    found = _lock(tmp_path, 2, clock=ManualClock(_HOUR_MS + 1_000))
    assert {file.name for file in tmp_path.iterdir()} == {left[1], held.name, found.name}


def test_a_file_that_its_process_has_touched_a_moment_before_its_end_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    old = _lock(tmp_path, clock=clock)
    clock.advance_ms(10 * _HOUR_MS)
    old.touch()
    assert (tmp_path / old.name).stat().st_mtime == 36_000
    ended = _ended_like(old, "a")
    (tmp_path / ended).touch()
    os.utime(tmp_path / ended, (36_000, 36_000))
    clock.advance_ms(6_000)
    assert _lock(tmp_path, 2, clock=clock).has_ended(ended)
