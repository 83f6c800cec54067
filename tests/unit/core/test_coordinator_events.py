"""Collected batches cut into events and put together again."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.operator_events import END, cut, is_last_piece, piece_of


@given(st.binary(min_size=1, max_size=200), st.integers(1, 50))
def test_pieces_make_the_batch_again_and_only_the_last_one_says_so(batch: bytes, size: int) -> None:
    events = list(cut(batch, size))
    assert b"".join(map(piece_of, events)) == batch
    assert [is_last_piece(event) for event in events] == [False] * (len(events) - 1) + [True]
    assert all(len(piece_of(event)) <= size for event in events)
    assert END not in events
