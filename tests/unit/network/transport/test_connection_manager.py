"""Connections by the name of the peer: how often they are tried, and who hears of it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.core.ids import ResourceId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.transport.connection_manager import ConnectionManager

LOCATION = TaskManagerLocation(ResourceId("a"), "127.0.0.1", 1, None, "elsewhere")


class UnreachableTable(ConnectionManager):
    """Nobody answers the first `failure_count` dials."""

    def __init__(
        self,
        failure_count: int,
        retry_count: int,
        error_type: type[Exception] = ConnectionRefusedError,
    ) -> None:
        nobody: Any = None
        super().__init__("here", nobody, 10, retry_count=retry_count)
        self.failure_count = failure_count
        self.error_type = error_type
        self.dial_count = 0

    async def _open(
        self, name: str, location: TaskManagerLocation, on_made: Callable[[], None]
    ) -> None:
        self.dial_count += 1
        if self.dial_count <= self.failure_count:
            raise self.error_type("refused")


def dial(table: UnreachableTable, callers: int = 1) -> list[str]:
    """The errors that `callers` hear of, who ask at the same time."""
    errors: list[str] = []

    async def connect() -> None:
        for _ in range(callers):
            table.connect(LOCATION, lambda session: None, errors.append)
        await asyncio.gather(*table._dials)

    asyncio.run(connect())
    return errors


@pytest.mark.parametrize("retry_count", [0, 1, 3])
def test_a_dial_is_repeated_as_often_as_the_option_says(retry_count: int) -> None:
    table = UnreachableTable(failure_count=100, retry_count=retry_count)
    assert dial(table) == ["127.0.0.1:1: refused"]
    assert table.dial_count == 1 + retry_count


def test_a_dial_that_succeeds_is_not_repeated() -> None:
    table = UnreachableTable(failure_count=1, retry_count=5)
    assert dial(table) == []
    assert table.dial_count == 2


def test_all_who_wait_for_one_dial_hear_of_its_failure_once() -> None:
    table = UnreachableTable(failure_count=100, retry_count=0)
    assert dial(table, callers=3) == ["127.0.0.1:1: refused"] * 3
    assert table.dial_count == 1


def test_all_who_wait_hear_of_a_dial_that_fails_unexpectedly() -> None:
    table = UnreachableTable(failure_count=100, retry_count=0, error_type=LookupError)
    assert dial(table, callers=3) == ["127.0.0.1:1: LookupError: refused"] * 3
