"""The moments at which a TaskManager is killed, and the failpoints that bring them about.

Output is committed by the driver, so moments of the commit are the driver's, and a TaskManager dies at them while the
driver continues. `tests/spark/test_driver_restarts.py` kills the driver itself inside a commit.
"""

import random
import re
from dataclasses import dataclass
from typing import Final

from headrace.core.process.failpoints import Failpoint

DRIVER: Final = "driver:"
"""Prefix of a failpoint in this process, at which some TaskManager is killed."""
_RANGE: Final = re.compile(r"#(\d+)-(\d+)")


@dataclass(frozen=True)
class Scenario:
    """`failpoints`: text of the option; `{token}` is replaced by a file of this run, `#4-8` by one of these counts.

    `stops_with_savepoint`: the job is stopped with a savepoint in its middle and resumed from it. `starts_afresh`:
    TaskManagers of an earlier run are killed first, as the moment comes only when new ones start.
    """

    name: str
    failpoints: tuple[str, ...]
    stops_with_savepoint: bool = False
    starts_afresh: bool = False

    def drawn(self, generator: random.Random) -> list[str]:
        """Return the failpoints with random counts."""

        def draw(match: re.Match[str]) -> str:
            return f"#{generator.randint(int(match[1]), int(match[2]))}"

        return [_RANGE.sub(draw, text) for text in self.failpoints]


def _kill(point: Failpoint, times: str = "1") -> str:
    return f"{point.value}#{times}=kill!{{token}}"


# There are three vertices, so by the seventh acknowledgement of a process two checkpoints are complete: what restarts
# has something to restore.
_RESTART_FIRST: Final = f"{Failpoint.ACKNOWLEDGED.value}#7=kill!{{token}}-first"

KILLS: Final = (
    Scenario("after register", (_kill(Failpoint.TASK_MANAGER_REGISTERED),), starts_afresh=True),
    Scenario("slot offered", (_kill(Failpoint.SLOT_OFFERED),)),
    Scenario("deploy received", (_kill(Failpoint.TASK_RECEIVED, "1-3"),)),
    Scenario("mid restore", (_RESTART_FIRST, _kill(Failpoint.RESTORE_HALF))),
    Scenario("restored before running", (_RESTART_FIRST, _kill(Failpoint.RESTORE_DONE))),
    Scenario("first frame sent", (_kill(Failpoint.FIRST_FRAME_SENT),)),
    Scenario("first barrier on one channel", (_kill(Failpoint.FIRST_BARRIER, "3-8"),)),
    Scenario("all barriers before the snapshot", (_kill(Failpoint.LAST_BARRIER, "3-8"),)),
    Scenario("upload at half", (_kill(Failpoint.UPLOAD_HALF, "4-12"),)),
    Scenario("upload done before ack", (_kill(Failpoint.UPLOAD_DONE, "4-12"),)),
    Scenario("ack sent", (_kill(Failpoint.ACKNOWLEDGED, "4-12"),)),
    Scenario("published, before the commit", (f"{DRIVER}{Failpoint.COMMIT_BEGUN.value}#1-3",)),
    Scenario("inside the commit", (f"{DRIVER}{Failpoint.COMMIT_HALF.value}#2-4",)),
    Scenario("committed, not noted yet", (f"{DRIVER}{Failpoint.COMMIT_DONE.value}#1-3",)),
    Scenario("notified", (_kill(Failpoint.NOTIFIED, "4-12"),)),
    Scenario("in cancel", (_RESTART_FIRST, _kill(Failpoint.CANCELLING))),
    Scenario("in stop-with-savepoint", (_kill(Failpoint.STOPPING),), stops_with_savepoint=True),
)

USER_CODE: Final = tuple(
    Scenario(f"user code {what}", (f"{Failpoint.USER_CODE.value}#2000-4000={action}!{{token}}",))
    for what, action in (
        ("raises", "raise"),
        ("exits", "exit"),
        ("segfaults", "crash"),
        ("loops", "loop"),
    )
)

UPLOADS: Final = (
    Scenario("writing state fails", (f"{Failpoint.UPLOAD_HALF.value}#5-12=raise!{{token}}",)),
    Scenario(
        "writing state fails late", (f"{Failpoint.UPLOAD_HALF.value}#5-12=raise-late!{{token}}",)
    ),
    Scenario("writing state is slow", (f"{Failpoint.UPLOAD_HALF.value}#5-12=slow!{{token}}",)),
)

# Up to eight tasks of the events job share a process: by the sixteenth acknowledgement two checkpoints are complete.
_EVENTS_RESTART_FIRST: Final = f"{Failpoint.ACKNOWLEDGED.value}#16=kill!{{token}}-first"

EVENT_KILLS: Final = (
    Scenario("mid restore", (_EVENTS_RESTART_FIRST, _kill(Failpoint.RESTORE_HALF))),
    Scenario("restored before running", (_EVENTS_RESTART_FIRST, _kill(Failpoint.RESTORE_DONE))),
    Scenario("first barrier on one channel", (_kill(Failpoint.FIRST_BARRIER, "6-16"),)),
    Scenario("all barriers before the snapshot", (_kill(Failpoint.LAST_BARRIER, "6-16"),)),
    Scenario("upload at half", (_kill(Failpoint.UPLOAD_HALF, "8-24"),)),
    Scenario("upload done before ack", (_kill(Failpoint.UPLOAD_DONE, "8-24"),)),
    Scenario("ack sent", (_kill(Failpoint.ACKNOWLEDGED, "8-24"),)),
    Scenario("inside the commit", (f"{DRIVER}{Failpoint.COMMIT_HALF.value}#2-4",)),
    Scenario("notified", (_kill(Failpoint.NOTIFIED, "8-20"),)),
)

SMOKE: Final = frozenset(
    {
        "first barrier on one channel",
        "upload done before ack",
        "inside the commit",
        "mid restore",
    }
)
