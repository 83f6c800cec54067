"""What columnar states hold is counted for the process, and named where it is more than managed memory."""

import logging
from collections.abc import Iterator

import pytest

from headrace.core.config import Settings
from headrace.core.process.state_memory import (
    StateMemory,
    columnar_state_bytes,
    columnar_state_text,
    kept_runs_bytes,
    row_buffer_bytes,
)

MB, TB = 1 << 20, 1 << 40
MANAGED = Settings(
    {"taskmanager.memory.process.size": "1 tb", "taskmanager.memory.managed.size": "300 gb"}
)


@pytest.fixture
def accounts() -> Iterator[tuple[StateMemory, StateMemory]]:
    made = StateMemory("joining", "left-rows", MANAGED), StateMemory("ranking", "rows", MANAGED)
    # What was told before is over once what is held fits.
    made[0].resize(MB)
    made[0].resize(0)
    yield made
    for account in made:
        account.close()


def test_states_of_all_operators_are_added_up_until_they_close(
    accounts: tuple[StateMemory, StateMemory],
) -> None:
    one, other = accounts
    before = columnar_state_bytes()
    one.grow(700)
    other.grow(30)
    other.grow(4)
    assert columnar_state_bytes() - before == 734
    one.resize(100)
    assert columnar_state_bytes() - before == 134
    one.close()
    assert columnar_state_bytes() - before == 34
    one.close()
    assert columnar_state_bytes() - before == 34


def test_more_than_managed_memory_is_told_with_the_largest_state_and_again_at_twice_as_much(
    accounts: tuple[StateMemory, StateMemory], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = accounts
    with caplog.at_level(logging.WARNING):
        one.grow(200 << 30)
        assert caplog.messages == []
        other.grow(150 << 30)
        [told] = caplog.messages
        for part in (
            "columnar state takes 375809",
            "managed memory is 322122",
            "'taskmanager.memory.managed.size'",
            "operator 'joining' holds the most, 214748",
            "in 'left-rows'",
        ):
            assert part in told
        other.grow(100 << 30)
        assert len(caplog.messages) == 1
        other.grow(300 << 30)
        assert len(caplog.messages) == 2
        assert "operator 'ranking'" in caplog.messages[1]


def test_it_is_told_anew_after_it_fitted(
    accounts: tuple[StateMemory, StateMemory], caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = accounts
    for size in (400 << 30, 0, 100 << 30, 400 << 30):
        one.resize(size)
    assert len(caplog.messages) == 2


def test_the_text_names_the_operator_that_holds_most(
    accounts: tuple[StateMemory, StateMemory],
) -> None:
    one, other = accounts
    one.resize(TB)
    other.resize(2 * TB)
    assert "operator 'ranking' holds the most" in columnar_state_text()


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({"taskmanager.memory.managed.size": "0"}, 16 * MB),
        ({"taskmanager.memory.managed.size": "256 mb"}, 32 * MB),
        ({"taskmanager.memory.managed.size": "1 gb"}, 64 * MB),
        ({"taskmanager.memory.managed.fraction": "0.5"}, 52 * MB),
    ],
)
def test_a_buffer_of_rows_is_an_eighth_of_managed_memory_within_bounds(
    settings: dict[str, str], size: int
) -> None:
    process = {
        "taskmanager.memory.process.size": "1024 mb" if "fraction" in str(settings) else "4 gb"
    }
    assert row_buffer_bytes(Settings({**process, **settings})) == size


@pytest.mark.parametrize(("managed", "size"), [("0", 0), ("100 mb", 50 * MB), ("1 gb", 256 * MB)])
def test_sorted_rows_stay_in_half_of_managed_memory_up_to_a_bound(managed: str, size: int) -> None:
    given = {"taskmanager.memory.process.size": "4 gb", "taskmanager.memory.managed.size": managed}
    assert kept_runs_bytes(Settings(given)) == size
