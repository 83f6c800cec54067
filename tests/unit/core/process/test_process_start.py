"""The start of a process tells it from a later one with its number."""

import os
import subprocess
import sys
from pathlib import Path

from headrace.core.clock import SystemClock
from headrace.core.process.process_start import process_start_ms, start_ticks
from testkit.waiting import wait_until


def stat_of(folder: Path, text: str) -> Path:
    (folder / "7").mkdir()
    (folder / "7" / "stat").write_text(text)
    return folder


def fields(state: str, started: int) -> str:
    return f"{state} " + "1 " * 18 + f"{started} 5 6"


def test_a_living_process_has_one() -> None:
    assert start_ticks(os.getpid()) == start_ticks(os.getpid()) > 0


def test_the_name_of_a_program_may_look_like_other_fields(tmp_path: Path) -> None:
    assert start_ticks(7, stat_of(tmp_path, f"7 (a) S 1 (b)) {fields('S', 4711)}")) == 4711


def test_a_process_that_nobody_has_buried_has_ended(tmp_path: Path) -> None:
    assert start_ticks(7, stat_of(tmp_path, f"7 (python) {fields('Z', 4711)}")) == 0


def test_nobody_knows_that_of_a_process_that_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    # Ended and not waited for, then waited for.
    wait_until(lambda: start_ticks(process.pid) == 0)
    process.wait()
    assert start_ticks(process.pid) == 0


def test_its_time_is_counted_from_the_start_of_the_machine(tmp_path: Path) -> None:
    proc = stat_of(tmp_path, f"7 (python) {fields('S', 3 * os.sysconf('SC_CLK_TCK'))}")
    assert process_start_ms(7, proc) == 0
    (proc / "stat").write_text("cpu 1 2\nbtime 1000\nprocesses 9\n")
    assert (process_start_ms(7, proc), process_start_ms(8, proc)) == (1_003_000, 0)
    assert abs(process_start_ms(os.getpid()) - SystemClock().now_ms()) < 86_400_000


def test_damaged_text_says_nothing(tmp_path: Path) -> None:
    assert start_ticks(7, stat_of(tmp_path, "7 (python) S 1")) == 0
