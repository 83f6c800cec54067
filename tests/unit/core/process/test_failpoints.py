"""Failpoints: armed by an option, at the right time, once for all processes that share a token."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.process import failpoints
from headrace.core.process.failpoints import FAILPOINTS, Failpoint, FailpointError, reach


@pytest.fixture(autouse=True)
def harmless() -> Iterator[None]:
    yield
    failpoints.disarm()


def arm(text: str) -> None:
    failpoints.arm(Settings({FAILPOINTS.key: text}))


def test_nothing_happens_unless_a_failpoint_is_armed() -> None:
    acted: list[Failpoint] = []
    for point in Failpoint:
        failpoints.arm_with(point, partial(acted.append, point))
    # It replaces whatever was armed.
    arm("")
    for point in Failpoint:
        reach(point)
    assert acted == []


def test_a_failpoint_acts_at_the_time_that_was_asked_for_and_only_then() -> None:
    arm("barrier.last#2=raise")
    reach(Failpoint.LAST_BARRIER)
    reach(Failpoint.FIRST_BARRIER)
    with pytest.raises(FailpointError):
        reach(Failpoint.LAST_BARRIER)
    reach(Failpoint.LAST_BARRIER)


def test_without_a_time_it_acts_every_time() -> None:
    arm("upload.done=raise")
    for _ in range(3):
        with pytest.raises(FailpointError):
            reach(Failpoint.UPLOAD_DONE)


def test_of_all_who_share_a_token_only_the_first_acts(tmp_path: Path) -> None:
    token = tmp_path / "token"
    arm(f"upload.done=raise!{token}")
    with pytest.raises(FailpointError):
        reach(Failpoint.UPLOAD_DONE)
    assert token.exists()
    arm(f"upload.done=raise!{token}")
    reach(Failpoint.UPLOAD_DONE)


@pytest.mark.parametrize(
    "text", ["upload.done", "upload.dune=kill", "upload.done=explode", "upload.done#x=kill"]
)
def test_what_cannot_be_read_names_the_points_and_the_actions(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"names: task-manager\.registered"):
        arm(text)


def test_a_file_may_arm_other_failpoints_while_the_process_lives(tmp_path: Path) -> None:
    file = tmp_path / "failpoints"
    arm(f"@{file}")
    reach(Failpoint.UPLOAD_DONE)
    file.write_text("upload.done=raise")
    with pytest.raises(FailpointError):
        reach(Failpoint.UPLOAD_DONE)
    file.write_text("")
    reach(Failpoint.UPLOAD_DONE)
