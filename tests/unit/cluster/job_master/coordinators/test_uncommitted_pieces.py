"""UncommittedPieces: what a published checkpoint covers is shown once, and a restart takes back exactly the rest."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.coordinators.collect_coordinator import UncommittedPieces
from headrace.gateways.job_master import CollectedPiece


def piece(number: int, subtask_index: int = 0, attempt: int = 0) -> CollectedPiece:
    return CollectedPiece(subtask_index, attempt, True, str(number).encode())


def test_a_published_checkpoint_shows_what_came_before_its_mark() -> None:
    pieces = UncommittedPieces()
    pieces.add(0, piece(1))
    pieces.add(0, 3)
    pieces.add(0, piece(2))
    assert pieces.published(3) == [piece(1)]
    assert pieces.published(3) == []


def test_a_restart_forgets_what_its_checkpoint_does_not_cover() -> None:
    pieces = UncommittedPieces()
    for element in (piece(1), 3, piece(2), 4, piece(3)):
        pieces.add(0, element)
    assert pieces.restored(0, 3) == [piece(1)]
    assert pieces.take_all() == []


def test_a_start_afresh_forgets_everything() -> None:
    pieces = UncommittedPieces()
    pieces.add(0, piece(1))
    pieces.add(1, piece(1, 1))
    assert pieces.all_restored(None) == []
    assert pieces.take_all() == []


@given(st.lists(st.sampled_from(["emit", "publish", "restart"]), max_size=60))
def test_every_record_is_shown_once_whatever_is_published_and_restarted(steps: list[str]) -> None:
    pieces = UncommittedPieces()
    shown: list[CollectedPiece] = []
    next_number = position = checkpoint_id = 0
    for step in steps:
        if step == "emit":
            pieces.add(0, piece(next_number))
            next_number += 1
        elif step == "publish":
            checkpoint_id += 1
            pieces.add(0, checkpoint_id)
            position = next_number
            shown += pieces.published(checkpoint_id)
        else:
            shown += pieces.restored(0, checkpoint_id or None)
            next_number = position
        assert pieces.size_bytes == sum(
            len(str(number)) for number in range(len(shown), next_number)
        )
    shown += pieces.take_all()
    assert pieces.size_bytes == 0
    assert shown == [piece(number) for number in range(next_number)]
