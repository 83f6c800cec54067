"""User programs as processes: started with a mark, watched, killed, and looked after for what they leave behind."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from headrace.spark.session.session import link_spark_home
from testkit.waiting import wait_until
from tests.spark.java_options import settings_of_executors
from tests.spark.processes import (
    MARK_VARIABLE,
    SPARK_HOME,
    Process,
    children_of,
    executor_directories,
    listening_ports_of,
    marked_processes,
    new_mark,
    parent_pid_of,
    temporary_files,
)

ROOT = Path(__file__).resolve().parents[2]
CLEAN_UP_TIMEOUT_S = 10
"""Within this time after its end a program must have left nothing: no process, no port, no file."""
PATIENCE_S = 150
"""A program that needs 20 seconds has needed 90 on a machine that did nine times as much else."""
COUNTING = """
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=20),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
with numbers.key_by(lambda n: n % 2).reduce(max).execute_and_collect() as rows:
    for number in rows:
        print(f"number {number}", flush=True)
"""
"""A program that prints `number n` for ever, on two TaskManagers."""


@dataclass
class Program:
    """One running program, and all processes that came from it."""

    mark: str
    process: subprocess.Popen[str]
    files_before: set[str]
    temporary: Path
    spark_home: Path
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def processes(self) -> list[Process]:
        return marked_processes(self.mark)

    def jvms(self) -> list[Process]:
        """The driver's JVM first, then executors."""
        found = [one for one in self.processes() if one.is_jvm]
        return sorted(found, key=lambda one: "CoarseGrainedExecutorBackend" in one.command)

    def executors(self) -> list[Process]:
        return [one for one in self.jvms() if "CoarseGrainedExecutorBackend" in one.command]

    def daemons(self) -> list[Process]:
        """Forking daemons: those that a JVM is the parent of."""
        jvm_children = {child.pid for jvm in self.jvms() for child in children_of(jvm.pid)}
        return [
            one for one in self.processes() if one.is_daemon_or_worker and one.pid in jvm_children
        ]

    def task_managers(self) -> list[Process]:
        """Workers with a listening port: only TaskManagers have one, and later their children that watch a lock."""
        daemons = {one.pid for one in self.daemons()}
        listening = [
            one
            for one in self.processes()
            if one.is_daemon_or_worker and one.pid not in daemons and listening_ports_of({one.pid})
        ]
        pids = {one.pid for one in listening}
        return [one for one in listening if parent_pid_of(one.pid) not in pids]

    def daemon_of(self, task_manager: Process) -> Process:
        """The forking daemon that is its parent."""
        return self._ancestor(task_manager, self.daemons())

    def executor_of(self, task_manager: Process) -> Process:
        """The executor that is its ancestor, on a cluster."""
        return self._ancestor(task_manager, self.executors())

    def _ancestor(self, process: Process, candidates: list[Process]) -> Process:
        by_pid = {one.pid: one for one in candidates}
        pid = process.pid
        while pid not in by_pid:
            pid = parent_pid_of(pid)
            assert pid > 1, f"{process.pid} is no descendant of {sorted(by_pid)}"
        return by_pid[pid]

    def wait_for_line(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        wait_until(
            lambda: any(text in line for line in self.out) or self.process.poll() is not None,
            timeout_s,
            f"the line '{text}' of\n{self.report()}",
        )
        assert any(text in line for line in self.out), f"no '{text}' in\n{self.report()}"

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end; return the exit code."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the program did not end\n{self.report()}") from None
        for reader in self.readers:
            # What outlives the program may hold its streams: that is found out later.
            reader.join(1)
        return code

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def pause(self) -> None:
        """Let the driver do nothing any more, with everything open that it has."""
        self.process.send_signal(signal.SIGSTOP)

    def error_line(self) -> str:
        """The first line that says what was wrong."""
        for line in self.err:
            if line.startswith("error: "):
                return line.removeprefix("error: ").rstrip("\n")
        raise AssertionError(f"no error line in\n{self.report()}")

    def assert_nothing_is_left(self) -> None:
        """No process, no port of one, and no file, of executors neither, within the clean-up time."""
        wait_until(
            lambda: not self.processes() and not self._files(),
            CLEAN_UP_TIMEOUT_S,
            "nothing is left; still there: "
            f"{[(one.pid, one.command[:200]) for one in self.processes()]}, "
            f"{self._files()}\n{self.report()}",
        )

    def _files(self) -> set[str]:
        """What came to the temporary directory since the start, and to Spark's directory for executors."""
        new_files = temporary_files(self.temporary) - self.files_before
        return new_files | executor_directories(self.spark_home)

    def end(self) -> None:
        """Whatever happens in a test, its processes end with it."""
        for one in self.processes():
            one.kill()
        self.process.wait(10)
        for reader in self.readers:
            reader.join(10)

    def report(self) -> str:
        return f"--- out\n{''.join(self.out[-40:])}--- err\n{''.join(self.err[-60:])}"


def start(
    command: list[str], directory: Path, environment: dict[str, str] | None = None
) -> Program:
    """Start `command` in `directory` with a temporary directory and a Spark home of its own.

    What others leave in the installed home at the same time must not be taken for this program's.
    """
    mark = new_mark()
    temporary = directory / "tmp"
    temporary.mkdir(exist_ok=True)
    spark_home = directory / "spark-home"
    if not spark_home.exists():
        link_spark_home(SPARK_HOME, spark_home)
    process = subprocess.Popen(
        command,
        cwd=directory,
        env={
            **os.environ,
            "SPARK_HOME": str(spark_home),
            **(environment or {}),
            MARK_VARIABLE: mark,
            "TMPDIR": str(temporary),
            "PYTHONUNBUFFERED": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    program = Program(mark, process, temporary_files(temporary), temporary, spark_home)
    for stream, lines in ((process.stdout, program.out), (process.stderr, program.err)):
        assert stream is not None
        reader = threading.Thread(target=_read, args=(stream, lines), daemon=True)
        reader.start()
        program.readers.append(reader)
    return program


def _read(stream: IO[str], lines: list[str]) -> None:
    with stream:
        lines.extend(stream)


def headrace_run(
    directory: Path, text: str, *options: str, arguments: tuple[str, ...] = ()
) -> Program:
    """Start `headrace run [options] program.py [arguments]` for a program of this text."""
    path = directory / "program.py"
    path.write_text(text)
    return start_headrace(directory, "run", *options, str(path), *arguments)


def start_headrace(
    directory: Path, *arguments: str, environment: dict[str, str] | None = None
) -> Program:
    """Start the command line with these arguments."""
    master = arguments[arguments.index("--master") + 1] if "--master" in arguments else ""
    command, *rest = arguments
    headrace = str(Path(sys.executable).parent / "headrace")
    given = [headrace, command, *settings_of_executors(master), *rest]
    return start(given, directory, environment)
