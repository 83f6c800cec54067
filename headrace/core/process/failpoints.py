"""Failpoints: named moments at which tests make a process die, freeze or fail. Inactive unless an option names them.

    headrace.testing.failpoints: barrier.last#2=kill!run/token; upload.done=raise

The first part means: when this process has all barriers of a checkpoint for the second time, it kills itself, if it is
the first process to make the file run/token. The second part: each time it has written its part of a checkpoint, that
fails. `@file` names a file with the same text, which is read repeatedly, so that it may change meanwhile.
"""

import enum
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError

FAILPOINTS: Final = ConfigOption(
    "headrace.testing.failpoints", str, "",
    "For tests: moments at which a process kills itself (`kill`), stops (`stop`), ends (`exit`), crashes (`crash`), is "
    "slow (`slow`), never goes on (`loop`) or fails (`raise`); semicolons between `name[#time]=action[!token file]`.",
)  # fmt: skip


class Failpoint(enum.Enum):
    """Moments in the life of a TaskManager, in order; those of jobs, publication and commit belong to the driver.

    TRIGGERED and NOTIFYING: a call to one task was sent. DELETING: a checkpoint's metadata was deleted, but not its
    files. JOB_CHECKED and RESULT_CHECKED: the driver has checked that it leads, and is about to store a job or a
    result. JOB_WRITTEN: a job is stored, and the driver has not yet checked whether a successor read the jobs before.
    """

    TASK_MANAGER_REGISTERED = "task-manager.registered"
    SLOT_OFFERED = "slot.offered"
    TASK_RECEIVED = "task.received"
    RESTORE_HALF = "restore.half"
    RESTORE_DONE = "restore.done"
    FIRST_FRAME_SENT = "frame.first"
    FIRST_BARRIER = "barrier.first"
    LAST_BARRIER = "barrier.last"
    UPLOAD_HALF = "upload.half"
    UPLOAD_DONE = "upload.done"
    ACKNOWLEDGED = "checkpoint.acknowledged"
    NOTIFIED = "checkpoint.notified"
    JOB_ACCEPTED = "job.accepted"
    JOB_CHECKED = "job.checked"
    JOB_WRITTEN = "job.written"
    JOB_STORED = "job.stored"
    TRIGGERED = "checkpoint.triggered"
    PUBLISHING = "checkpoint.publishing"
    METADATA_WRITTEN = "checkpoint.metadata-written"
    CHECKPOINT_PUBLISHED = "checkpoint.published"
    NOTIFYING = "checkpoint.notifying"
    DELETING = "checkpoint.deleting"
    COMMIT_BEGUN = "commit.begun"
    COMMIT_HALF = "commit.half"
    COMMIT_DONE = "commit.done"
    JOB_ENDED = "job.ended"
    RESULT_CHECKED = "job.result-checked"
    RESULT_STORED = "job.result-stored"
    CANCELLING = "task.cancelling"
    STOPPING = "task.stopping"
    USER_CODE = "user.code"


class FailpointError(Exception):
    """Raised by the failpoint action `raise`."""


@dataclass
class _Armed:
    act: Callable[[], None]
    time: int
    token: Path | None
    reached_count: int = 0


class _File:
    """A file that names the armed failpoints; a missing file arms none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text: str | None = None

    def look(self) -> None:
        """Arm the failpoints of the file, again after every change."""
        text = self._path.read_text() if self._path.exists() else ""
        if text != self._text:
            self._text = text
            _arm(text)


_armed: dict[Failpoint, _Armed] = {}
_files: list[_File] = []
_SLOW_S: Final = 2.0


def reach(point: Failpoint) -> None:
    """Perform the action of `point`, if it is armed; otherwise this costs one look-up in an empty dict."""
    if _armed or _files:
        _reach(point)


def arm(settings: Settings) -> None:
    """Arm the failpoints of the option, instead of those armed before. ConfigurationError."""
    disarm()
    text = settings.get_option(FAILPOINTS)
    if text.startswith("@"):
        _files.append(_File(Path(text[1:])))
    else:
        _arm(text)


def arm_with(point: Failpoint, act: Callable[[], None], *, time: int = 1) -> None:
    """Call `act` at the `time`-th time that this process reaches `point`."""
    _armed[point] = _Armed(act, time, None)


def disarm() -> None:
    """Disarm all failpoints."""
    _armed.clear()
    _files.clear()


def _arm(text: str) -> None:
    armed = [_parse(part.strip()) for part in text.split(";") if part.strip()]
    _armed.clear()
    _armed.update(armed)


def _reach(point: Failpoint) -> None:
    for file in _files:
        file.look()
    armed = _armed.get(point)
    if armed is None:
        return
    armed.reached_count += 1
    if armed.time and armed.reached_count != armed.time:
        return
    if armed.token is not None and not _take(armed.token):
        return
    armed.act()


def _take(token: Path) -> bool:
    """Make the token file; return whether this process is the first to do so."""
    try:
        os.close(os.open(token, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _parse(text: str) -> tuple[Failpoint, _Armed]:
    name, equals, rest = text.partition("=")
    name, _, time_text = name.strip().partition("#")
    action, _, token = rest.strip().partition("!")
    points = {point.value: point for point in Failpoint}
    if (
        not equals
        or name not in points
        or action not in _ACTIONS
        or not (time_text or "1").isdigit()
    ):
        raise ConfigurationError(
            FAILPOINTS.key,
            text,
            f"write name[#time]=action[!token file]; names: {', '.join(points)}; actions: {', '.join(_ACTIONS)}",
        )
    armed = _Armed(_ACTIONS[action], int(time_text or "0"), Path(token) if token else None)
    return points[name], armed


def _signal(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _loop() -> None:
    while True:
        time.sleep(_SLOW_S)


def _fail() -> None:
    raise FailpointError("a failpoint says so")


def _fail_late() -> None:
    time.sleep(_SLOW_S)
    _fail()


_ACTIONS: Final[dict[str, Callable[[], None]]] = {
    "kill": _signal(signal.SIGKILL),
    "stop": _signal(signal.SIGSTOP),
    "crash": _signal(signal.SIGSEGV),
    "exit": lambda: os._exit(3),
    "raise": _fail,
    "raise-late": _fail_late,
    "slow": lambda: time.sleep(_SLOW_S),
    "loop": _loop,
}
