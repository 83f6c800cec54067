"""The moments at which a TaskManager is killed, each with how it is brought about.

Output is committed by the driver, so moments of the commit are the driver's, and a TaskManager dies at them; what
happens where the driver itself dies then is `tests/spark/test_driver_restarts.py`.
"""

from dataclasses import dataclass
from typing import Final

from headrace.core.failpoints import Failpoint


@dataclass(frozen=True)
class Scenario:
    """`failpoints`: text of the option, `{token}` standing for a file of this run's own.

    `needs_failure_first`: the moment comes only in a restart, so that another kill must come before.
    `stops_with_savepoint`: the job is stopped with a savepoint in its middle and resumed from it.
    """

    name: str
    failpoints: tuple[str, ...]
    stops_with_savepoint: bool = False


def _kill(point: Failpoint, time: int = 1) -> str:
    return f"{point.value}#{time}=kill!{{token}}"


_RESTART_FIRST: Final = f"{Failpoint.ACKNOWLEDGED.value}#3=kill!{{token}}-first"

KILLS: Final = (
    Scenario("after register", (_kill(Failpoint.TASK_MANAGER_REGISTERED),)),
    Scenario("slot offered", (_kill(Failpoint.SLOT_OFFERED),)),
    Scenario("deploy received", (_kill(Failpoint.TASK_RECEIVED),)),
    Scenario("mid restore", (_RESTART_FIRST, _kill(Failpoint.RESTORE_HALF))),
    Scenario("restored before running", (_RESTART_FIRST, _kill(Failpoint.RESTORE_DONE))),
    Scenario("first frame sent", (_kill(Failpoint.FIRST_FRAME_SENT),)),
    Scenario("first barrier on one channel", (_kill(Failpoint.FIRST_BARRIER, 4),)),
    Scenario("all barriers before the snapshot", (_kill(Failpoint.LAST_BARRIER, 4),)),
    Scenario("upload at half", (_kill(Failpoint.UPLOAD_HALF, 5),)),
    Scenario("upload done before ack", (_kill(Failpoint.UPLOAD_DONE, 5),)),
    Scenario("ack sent", (_kill(Failpoint.ACKNOWLEDGED, 6),)),
    Scenario("notified", (_kill(Failpoint.NOTIFIED, 6),)),
    Scenario("while the driver commits", ("driver:" + Failpoint.COMMIT_HALF.value + "#2",)),
    Scenario(
        "files named, commit not noted yet", ("driver:" + Failpoint.COMMIT_DONE.value + "#2",)
    ),
    Scenario("in cancel", (_RESTART_FIRST, _kill(Failpoint.CANCELLING))),
    Scenario("in stop-with-savepoint", (_kill(Failpoint.STOPPING),), stops_with_savepoint=True),
)

USER_CODE: Final = tuple(
    Scenario(f"user code {what}", (f"{Failpoint.USER_CODE.value}#5000={action}!{{token}}",))
    for what, action in (
        ("raises", "raise"),
        ("exits", "exit"),
        ("segfaults", "crash"),
        ("loops", "loop"),
    )
)

STORAGE: Final = (
    Scenario("writing state fails", (f"{Failpoint.UPLOAD_HALF.value}#9=raise!{{token}}",)),
    Scenario("writing state is slow", (f"{Failpoint.UPLOAD_HALF.value}#9=slow!{{token}}",)),
)

SMOKE: Final = frozenset(
    {
        "first barrier on one channel",
        "upload done before ack",
        "while the driver commits",
        "mid restore",
    }
)
