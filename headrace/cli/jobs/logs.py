"""`headrace logs`: prints log files of the JobManager and of TaskManagers, once or as they grow."""

import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import click

from headrace.cli.figures import size_or_dash
from headrace.cli.general_options import print_json
from headrace.cli.jobs.cluster_command import ClusterCommand, ClusterSession
from headrace.rest.client import Piece, RestClient, Wait, path_of
from headrace.rest.client_errors import ClusterEndedError, RestError, RestRefusedError

_POLL_S: Final = 1.0
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_LINES_MAX: Final = 1_000_000
_END_SIZE_BYTES: Final = 64 << 20
"""Size of the end of a file that is searched for its last lines."""
_HELP: Final = """\
Print a log of the JobManager, or of the TaskManager that is named by its id, its number or a part of its id. Name one
that has ended by its whole id, which 'headrace exceptions' shows.

\b
Try it:
  headrace logs                              of the JobManager
  headrace logs -f                           also print new lines, until Ctrl-C
  headrace logs 1 -n 100                     the last lines of the first TaskManager
  headrace logs 1 --stdout                   what user code prints there
  headrace logs --list                       the files of the JobManager
  headrace logs --file jobmanager.log.1      one of them

With -n or --json only the last 64 MiB of a file are read.
"""
_NUMBERS_MAX: Final = 100
"""Number of older files in which a file is looked for."""
_REFUSALS_MAX: Final = 5
"""Reads in a row at which the file may be missing: it is missing for a moment while it is rotated."""


class LogFollower:
    """Follows the file at `path` from the byte `offset` on. `note` prints a warning if lines are lost."""

    def __init__(
        self,
        client: RestClient,
        path: str,
        offset: int,
        write: Callable[[bytes], None],
        note: Callable[[str], None],
    ) -> None:
        self._client: Final = client
        self._path: Final = path
        self._write: Final = write
        self._note: Final = note
        self._offset = offset
        self._name = ""  # name of the newest file, as the server first reported it
        self._file_id = ""
        self._refusal_count = 0

    def write_new(self) -> None:
        """Write the new content since the last call. RestRefusedError if the file does not exist."""
        try:
            while not self._write_from(self._path):
                self._write_put_aside()
        except RestRefusedError:
            self._refusal_count += 1
            if not self._file_id or self._refusal_count >= _REFUSALS_MAX:
                raise
        else:
            self._refusal_count = 0

    def _write_from(self, path: str) -> bool:
        """Write the rest of the file at `path`; return False, without writing, if it is not the file read before."""
        for piece in self._client.text(path, self._offset):
            if self._file_id and piece.file_id and piece.file_id != self._file_id:
                return False
            self._name, self._file_id = self._name or piece.file_name, piece.file_id
            self._write(piece.content)
            self._offset = piece.offset + len(piece.content)
        return True

    def _write_put_aside(self) -> None:
        """Write the rest of the rotated file, and continue with the new one."""
        number = self._number_of(self._file_id)
        if number is None:
            self._note(
                "lines are missing here: the log was rotated more often than old files are kept"
            )
            self._begin(self._client.first_byte(self._path))
            return
        if not self._write_from(self._numbered(number)):
            return  # put aside once more meanwhile: it has another number
        follower = self._client.first_byte(self._numbered(number - 1))
        if self._client.first_byte(self._numbered(number)).file_id == self._file_id:
            self._begin(follower)

    def _begin(self, first: Piece) -> None:
        self._file_id, self._offset = first.file_id, 0

    def _number_of(self, file_id: str) -> int | None:
        for number in range(1, _NUMBERS_MAX):
            try:
                first = self._client.first_byte(self._numbered(number))
            except RestRefusedError:
                return None
            if first.file_id == file_id:
                return number
        return None

    def _numbered(self, number: int) -> str:
        """Return the path of the `number`th newest rotated file; 0 is the current one."""
        if not number:
            return self._path
        folder = self._path.rpartition("/")[0].removesuffix("/logs")
        return f"{folder}/logs{path_of(f'{self._name}.{number}')}"


@click.command(cls=ClusterCommand, help=_HELP)
@click.option("-l", "--list", "is_list", is_flag=True, help="List the files.")
@click.option("--file", "name", metavar="NAME", help="Print this file.")
@click.option(
    "-o",
    "--stdout",
    "is_stdout",
    is_flag=True,
    help="Print the standard output instead of the log.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines, until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, _LINES_MAX),
    help="Print only this number of lines at the end.",
)
@click.argument("taskmanager", metavar="[TASKMANAGER]", required=False)
@click.pass_obj
def logs(
    session: ClusterSession,
    is_list: bool,
    name: str | None,
    is_stdout: bool,
    follow: bool,
    lines: int | None,
    taskmanager: str | None,
) -> int:
    """Print a log; the help text is `_HELP`."""
    if sum((is_list, name is not None, is_stdout)) > 1:
        raise click.UsageError("--list, --file and --stdout cannot be combined")
    if follow and (is_list or session.is_json):
        raise click.UsageError("--follow cannot be combined with --list or --json")
    process = ["jobmanager"]
    if taskmanager is not None:
        process = ["taskmanagers", _task_manager(session, taskmanager)]
    if is_list:
        found: list[dict[str, Any]] = session.client.get_object(path_of(*process, "logs")).get(
            "logs", []
        )
        session.answer({"logs": found})
        if not session.is_json:
            session.say(
                "\n".join(f"{size_or_dash(one['size']):>10}  {one['name']}" for one in found)
                or "No logs."
            )
        return 0
    path = path_of(*process, *(["logs", name] if name else ["stdout"] if is_stdout else ["log"]))
    try:
        _print_log(session, path, lines, follow=follow)
    except ClusterEndedError:
        session.note("the cluster has ended")
    except RestRefusedError:
        if _has_logs(session, process):
            session.note(
                "--list shows the existing files; 'headrace logs 1' shows the log of the first TaskManager"
            )
        raise
    return 0


def _has_logs(session: ClusterSession, process: Sequence[str]) -> bool:
    """Return whether the server has log files at all; a history server has none."""
    try:
        session.client.get_object(path_of(*process, "logs"))
    except RestError:
        return False
    return True


def _task_manager(session: ClusterSession, named: str) -> str:
    """Return the id of a registered TaskManager, or of an ended one whose log still exists."""
    try:
        return session.task_manager_named(named)
    except click.UsageError:
        try:
            session.client.get_object(path_of("taskmanagers", named, "logs"))
        except RestRefusedError:
            pass
        else:
            return named
        raise


def _print_log(session: ClusterSession, path: str, lines: int | None, *, follow: bool) -> None:
    if session.is_json:
        whole = b"".join(_end_of(session.client, path, lines)[0])
        print_json({"text": whole.decode("utf-8", "replace")})
        return
    contents, offset = _end_of(session.client, path, lines) if lines is not None else ((), 0)
    for content in contents:
        _write(content)
    if lines is None or follow:
        follower = LogFollower(session.client, path, offset, _write, session.note)
        follow_log(follower, threading.Event().wait, is_endless=follow)


def follow_log(follower: LogFollower, wait: Wait, *, is_endless: bool) -> None:
    """Write a log; if endless, also what is added to it."""
    follower.write_new()
    while is_endless:
        wait(_POLL_S)
        follower.write_new()


def _end_of(client: RestClient, path: str, line_count: int | None) -> tuple[list[bytes], int]:
    """Return the last lines of the last 64 MiB of a file, or all of them, and the size of the file."""
    last: deque[bytes] = deque(maxlen=line_count)
    size = 0
    for line, end in _lines(client, path):
        last.append(line)
        size = end
    return list(last), size


def _lines(client: RestClient, path: str) -> Iterator[tuple[bytes, int]]:
    """Yield lines with their ends, and the position after each."""
    rest, end = b"", None
    for piece in client.text(path, -_END_SIZE_BYTES):
        end = piece.offset if end is None else end
        *whole, rest = (rest + piece.content).split(b"\n")
        for line in whole:
            end += len(line) + 1
            yield line + b"\n", end
    if rest and end is not None:
        yield rest, end + len(rest)


def _write(content: bytes) -> None:
    if is_terminal():
        # What programs print and log may hold sequences that a terminal would obey.
        content = _CONTROLS.sub(lambda found: repr(found[0])[2:-1].encode(), content)
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()
