"""The judge of pointers to newest checkpoints finds each way to have two, and nothing in an orderly life."""

from collections.abc import Iterable

import pytest

from testkit.chaos.checkpoint_pointers import CheckpointPointers, Complete, Look


def look(newest: int | None, **epochs: int) -> Look:
    """Return a look in which checkpoint `c7` was written by the leader of the epoch that it is set to."""
    complete = {
        int(name[1:]): Complete("line", epoch, f"{name} {epoch}".encode())
        for name, epoch in epochs.items()
    }
    return Look(newest, complete)


def mistakes(looks: Iterable[Look]) -> list[str]:
    pointers = CheckpointPointers()
    for one in looks:
        pointers.take(one)
    return pointers.mistakes


def test_an_orderly_life_under_two_leaders_has_no_mistake() -> None:
    looks = [
        look(None),
        look(None, c1=1),
        look(1, c1=1),
        look(1, c1=1, c2=1),  # its leader dies before it writes the pointer
        look(1, c1=1, c2=1, c4=2),
        look(4, c4=2, c5=2),
        look(5),  # the job has ended, and its checkpoints are deleted before the pointer
        look(None),
    ]
    assert mistakes(looks) == []


@pytest.mark.parametrize(
    ("looks", "mistake"),
    [
        ([look(2, c1=1)], "the pointer names checkpoint 2, but the newest complete one is 1"),
        ([look(2, c2=1), look(1, c2=1)], "the pointer went back from checkpoint 2 to 1"),
        ([look(3, c3=2), look(3, c2=1, c3=2)], "checkpoint 2 of the leader of epoch 1 came after"),
        ([look(3, c2=2, c3=1)], "checkpoint 3 is of epoch 1, and 2 before it of epoch 2"),
        ([look(1, c1=1), look(1, c1=2)], "checkpoint 1 was written twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_way_to_have_two_newest_checkpoints_is_a_mistake(
    looks: list[Look], mistake: str
) -> None:
    assert any(mistake in found for found in mistakes(looks))


def test_two_lineages_of_a_job_are_a_mistake() -> None:
    both = {1: Complete("line", 1, b"1"), 2: Complete("other", 1, b"2")}
    assert any("2 lineages" in found for found in mistakes([Look(2, both)]))
