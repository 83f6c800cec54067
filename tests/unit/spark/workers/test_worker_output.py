"""Printed lines of workers arrive at the user's standard output, whole line by whole line."""

import io
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core.process.process_log import print_prefix
from headrace.spark.workers.worker_output import OutputPipe, redirect_standard_output

WRITER = """
import os, sys
from headrace.spark.workers.worker_output import redirect_standard_output
with redirect_standard_output(sys.argv[1]):
    for number in range(int(sys.argv[2])):
        print("x" * 100, number)
    os.write(1, b"past python\\n")
print("home again")
"""


def test_lines_of_several_processes_come_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = OutputPipe(tmp_path / "pipe")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(pipe.path), "200"], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    own = [writer.communicate(timeout=60)[0] for writer in writers]
    pipe.close()
    lines = capsys.readouterr().out.splitlines()
    expected = 2 * [f"{'x' * 100} {number}" for number in range(200)] + 2 * ["past python"]
    assert sorted(lines) == sorted(expected)
    assert own == ["home again\n", "home again\n"]
    assert list(tmp_path.iterdir()) == []


def test_lines_come_in_a_program_with_more_than_a_thousand_open_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 4096), limits[1]))
    source = os.open(os.devnull, os.O_RDONLY)
    opened = [os.dup(source) for _ in range(1100)]
    try:
        pipe = OutputPipe(tmp_path / "pipe")
        with open(pipe.path, "wb", buffering=0) as writer:
            writer.write(b"here\n")
        pipe.close()
    finally:
        for descriptor in [source, *opened]:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert capsys.readouterr().out == "here\n"


def test_without_a_pipe_nothing_is_redirected(capsys: pytest.CaptureFixture[str]) -> None:
    with redirect_standard_output(""):
        print("here")
    assert capsys.readouterr().out == "here\n"


def test_a_pipe_that_nobody_reads_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with redirect_standard_output(str(tmp_path / "gone")):
        print("here")
    assert capsys.readouterr().out == "here\n"


SUBTASKS = """
import asyncio, sys, threading
from pathlib import Path
from headrace.core.process.process_log import PRINT_PREFIX, print_prefix
from headrace.spark.workers.worker_output import redirect_standard_output

turns = [threading.Semaphore(0) for _ in range(2)]

def subtask(index):
    PRINT_PREFIX.set(print_prefix(index, 2))
    for part in ("begun", " and ", index, "\\n", "two\\nlines\\n", "open"):
        assert turns[index].acquire(timeout=60)
        print(part, end="")
        turns[1 - index].release()

async def call(index, own, other):
    PRINT_PREFIX.set(print_prefix(index, 2))
    print("awaited", end=" ")
    other.set()
    await own.wait()
    print(index)
    other.set()

async def calls():
    events = [asyncio.Event() for _ in range(2)]
    await asyncio.gather(*(call(index, events[index], events[1 - index]) for index in range(2)))

with open(sys.argv[2], "wb") as copy, redirect_standard_output(sys.argv[1], copy.write):
    threads = [threading.Thread(target=subtask, args=(index,)) for index in range(2)]
    print("a thread of", end=" ")
    for thread in threads:
        thread.start()
    turns[0].release()
    for thread in threads:
        thread.join(60)
    asyncio.run(calls())
    print("the process")
"""


def test_a_line_is_of_one_subtask_which_stands_in_front_but_not_in_the_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe, copy = OutputPipe(tmp_path / "pipe"), tmp_path / "copy"
    subprocess.run(
        [sys.executable, "-c", SUBTASKS, str(pipe.path), str(copy)], check=True, timeout=120
    )
    pipe.close()
    begun = [f"{index + 1}> begun and {index}" for index in range(2)]
    rest = [f"{index}> {word}" for index in (1, 2) for word in ("two", "lines", "open")]
    awaited = ["1> awaited 0", "2> awaited 1"]
    shown = capsys.readouterr().out.splitlines()
    assert sorted(shown) == sorted([*begun, *rest, *awaited, "a thread of the process"])
    bare = [line.partition("> ")[2] or line for line in shown]
    assert copy.read_text().splitlines() == bare


ENDED_THREADS = """
import sys, threading
from headrace.spark.workers.worker_output import redirect_standard_output
with redirect_standard_output(sys.argv[1]):
    for number in range(2):
        thread = threading.Thread(target=print, args=("begun", number), kwargs={"end": ""})
        thread.start()
        thread.join()
    print("whole")
    print("the last", end="")
"""


def test_what_threads_have_begun_and_not_ended_comes_with_the_next_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = OutputPipe(tmp_path / "pipe")
    subprocess.run([sys.executable, "-c", ENDED_THREADS, str(pipe.path)], check=True, timeout=60)
    pipe.close()
    assert capsys.readouterr().out == "whole\nbegun 0\nbegun 1\nthe last"


def test_the_only_subtask_has_no_number() -> None:
    assert [print_prefix(0, 1), print_prefix(0, 2), print_prefix(11, 12)] == ["", "1> ", "12> "]


LONG_LINES = """
import sys
from headrace.spark.workers.worker_output import redirect_standard_output
with redirect_standard_output(sys.argv[1]):
    for _ in range(100):
        print(sys.argv[2] * 20_000)
"""


def test_lines_longer_than_a_pipe_takes_at_once_come_whole_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = OutputPipe(tmp_path / "pipe")
    writers = [
        subprocess.Popen([sys.executable, "-c", LONG_LINES, str(pipe.path), letter])
        for letter in "ab"
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    pipe.close()
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == ["a" * 20_000] * 100 + ["b" * 20_000] * 100


BYTES = r"""
import sys
from headrace.spark.workers.worker_output import redirect_standard_output
with redirect_standard_output(sys.argv[1]):
    sys.stdout.buffer.write(b"na\xefve \xff")
    sys.stdout.buffer.flush()
    print(" and on")
    sys.stdout.write("without an end")
"""


def test_bytes_that_are_no_text_come_as_what_stands_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = OutputPipe(tmp_path / "pipe")
    subprocess.run([sys.executable, "-c", BYTES, str(pipe.path)], check=True, timeout=60)
    pipe.close()
    assert capsys.readouterr().out == "na\ufffdve \ufffd and on\nwithout an end"


READER_GONE = """
import os, signal, sys, threading
from pathlib import Path
from headrace.spark.workers.worker_output import OutputPipe, redirect_standard_output
pipe = OutputPipe(Path(sys.argv[1]))
descriptor = os.open(sys.argv[1], os.O_WRONLY)
written = threading.Event()
# Whoever started the tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def fill():
    for _ in range(50):
        os.write(descriptor, b"x" * 100_000 + b"\\n")
    written.set()

try:
    # Here: the interruption may come before the next line.
    threading.Thread(target=fill, daemon=True).start()
    threading.Event().wait(60)
except KeyboardInterrupt:
    assert written.wait(60), "the writer waits for room"
    pipe.close()
    sys.exit(7)
"""


def test_who_prints_to_nobody_is_interrupted_and_keeps_no_worker_waiting(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", READER_GONE, str(tmp_path / "pipe")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert program.stdout is not None and program.stderr is not None
    assert program.stdout.readline() == b"x" * 100_000 + b"\n"
    program.stdout.close()
    assert program.wait(60) == 7
    errors = program.stderr.read().decode()
    assert "standard output is broken" in errors
    assert "Traceback" not in errors
    program.stderr.close()


class _Latin1(io.TextIOWrapper):
    """Standard output of a terminal that does not know every character."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="latin-1")


def test_characters_that_the_terminal_lacks_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = _Latin1()
    monkeypatch.setattr(sys, "stdout", terminal)
    pipe = OutputPipe(tmp_path / "pipe")
    writer = os.open(pipe.path, os.O_WRONLY)
    os.write(writer, "5 € für dich\n".encode())
    os.close(writer)
    pipe.close()
    buffer = terminal.buffer
    assert isinstance(buffer, io.BytesIO)
    assert buffer.getvalue().decode("latin-1") == "5 ? für dich\n"


class _Refusing(io.TextIOBase):
    """Standard output whose reader is gone."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_the_last_lines_to_nobody_do_not_interrupt_a_program_that_is_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", _Refusing())
    pipe = OutputPipe(tmp_path / "pipe")
    writer = os.open(pipe.path, os.O_WRONLY)
    os.write(writer, b"no newline yet")
    os.close(writer)
    pipe.close()
    assert list(tmp_path.iterdir()) == []
