"""Frames that cost their sender nothing: honest peers send them as they need, others no faster than is good for all."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.network.sessions.connection_protocol import (
    BYTES_PER_EARNED_FRAME,
    EARNED_FRAMES_PER_S_MAX,
    FREE_FRAMES_BURST,
    FREE_FRAMES_PER_S,
    ControlFrameLimiter,
)
from headrace.network.wire.frames import AddCredit, Data, KeepAlive
from headrace.network.wire.framing import Frame

MS = 1_000_000
BATCH = Data(0, 0, 1, 0, 1, 0, (), b"")
SMALLEST_BATCH_BYTES = BYTES_PER_EARNED_FRAME


def test_a_burst_is_taken_at_once_and_what_follows_waits_for_its_time() -> None:
    budget = ControlFrameLimiter(0)
    assert budget.spend([KeepAlive()] * FREE_FRAMES_BURST, 0) == 0
    assert budget.spend([KeepAlive()] * 100, 0) == 100 * 1000 / FREE_FRAMES_PER_S
    assert budget.spend([], 50 * MS) == 0


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 50)), min_size=1))
def test_a_peer_that_sends_without_end_is_taken_at_the_rate_and_no_faster(
    reads: list[tuple[int, int]],
) -> None:
    budget, now_ns, taken = ControlFrameLimiter(0), 0, 0
    for count, idle_ms in reads:
        now_ns += idle_ms * MS
        taken += count
        now_ns += int(budget.spend([KeepAlive()] * count, now_ns) * MS)
        # The last read may go into debt, which is paid by the pause.
        assert taken <= FREE_FRAMES_BURST + FREE_FRAMES_PER_S * now_ns / 1e9 + 1


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 20)),
        min_size=1,
        max_size=200,
    )
)
def test_a_peer_that_answers_batches_never_waits(turns: list[tuple[int, int, int]]) -> None:
    """A credit for each batch that it was sent, a word for each batch that it sends, within what a core can do."""
    budget, now_ns = ControlFrameLimiter(0), 0
    for sent, received, spare_ms in turns:
        now_ns += (sent + received) * 1_000_000_000 // EARNED_FRAMES_PER_S_MAX + spare_ms * MS
        budget.sent(sent * SMALLEST_BATCH_BYTES)
        frames: list[Frame] = [AddCredit(0, 1)] * (sent + received) + [BATCH] * received
        assert budget.spend(frames, now_ns) == 0


@given(st.lists(st.integers(0, 1 << 30), min_size=1, max_size=50))
def test_whoever_takes_many_rows_may_not_send_without_end_either(sent: list[int]) -> None:
    budget, now_ns, taken = ControlFrameLimiter(0), 0, 0
    for byte_count in sent:
        budget.sent(byte_count)
        taken += 1000
        now_ns += int(budget.spend([AddCredit(0, 1)] * 1000, now_ns) * MS)
    rate = FREE_FRAMES_PER_S + EARNED_FRAMES_PER_S_MAX
    assert taken <= 2 * FREE_FRAMES_BURST + 1000 + rate * now_ns / 1e9


def test_rows_are_paid_for_by_credit_and_cost_nothing_here() -> None:
    budget = ControlFrameLimiter(0)
    assert budget.spend([BATCH] * 10 * FREE_FRAMES_BURST, 0) == 0
    assert budget.spend([KeepAlive()] * FREE_FRAMES_BURST, 0) == 0
