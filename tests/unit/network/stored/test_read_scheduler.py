"""ReadScheduler: no view that wants to be read is forgotten, and each has one job at a time."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.network.errors import NetworkError
from headrace.network.stored.read_scheduler import JOBS_MAX, ReadScheduler
from headrace.network.stored.stored_view import CoalescedRead, ReadCandidate
from tests.unit.network.stored.held_io import HeldIo


class View:
    """Stands for a StoredView of so many elements, of which `room` fit beside it."""

    def __init__(self, number: int, left: int, barren: int) -> None:
        self.number, self.left, self.barren = number, left, barren
        self.queued = 0
        self.fills = 0

    def candidate(self) -> "ReadCandidate[View] | None":
        if not self.left or self.queued >= 2:
            return None
        return ReadCandidate(self, self.queued, self.number, 1)

    def fill(self, stretch: CoalescedRead) -> None:
        if self.candidate() is None:
            return
        self.fills += 1
        self.left -= 1
        if self.barren:
            # Elements that its consumer has already: nobody hears of them.
            self.barren -= 1
        else:
            self.queued += 1


@given(
    views=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=40),
    choices=st.lists(st.integers(0, 50), max_size=200),
)
def test_every_element_is_read_for_every_consumer(
    views: list[tuple[int, int]], choices: list[int]
) -> None:
    io = HeldIo()
    loop = ReadScheduler(io)
    made = [View(number, left, min(left, barren)) for number, (left, barren) in enumerate(views)]
    asked: Any = loop.request
    for view in made:
        asked(view)
    turns = iter(choices)
    while any(view.left or view.queued for view in made):
        assert len(io.jobs) <= JOBS_MAX
        waiting = [view for view in made if view.queued]
        takes = next(turns, 1)
        if waiting and takes % 2:
            view = waiting[takes % len(waiting)]
            view.queued -= 1
            asked(view)
        elif io.jobs:
            io.run_one()
        else:
            assert waiting, "somebody is left out"
            waiting[0].queued -= 1
            asked(waiting[0])
    assert [view.fills for view in made] == [left for left, _ in views]
    io.close()
    assert not io.jobs


class BrokenView(View):
    """Cannot be read for, as we have made a mistake."""

    failure = ""

    def fill(self, stretch: CoalescedRead) -> None:
        raise ValueError(f"view {self.number} is broken")

    def fail(self, error: NetworkError) -> None:
        self.failure = str(error)


def test_the_consumer_of_a_view_that_cannot_be_read_for_hears_of_it_and_others_are_read() -> None:
    io = HeldIo()
    scheduler: Any = ReadScheduler(io)
    broken, sound = BrokenView(0, 1, 0), View(1, 1, 0)
    scheduler.request(broken)
    scheduler.request(sound)
    while io.jobs:
        io.jobs.popleft()()
    assert "ValueError: view 0 is broken" in broken.failure
    assert sound.queued == 1
