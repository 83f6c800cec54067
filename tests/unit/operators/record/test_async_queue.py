"""The queues of asynchronous operators against their definition, in random orders of completion."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import StreamMarker, Watermark
from headrace.operators.record.async_queue import (
    AsyncQueue,
    InFlight,
    OrderedQueue,
    UnorderedQueue,
)

Element = InFlight | StreamMarker


def _filled(queue: AsyncQueue[InFlight], *elements: Any) -> list[Any]:
    """Put numbers as inputs and Watermarks as markers; return what was put."""
    put: list[Any] = []
    for element in elements:
        if isinstance(element, Watermark):
            queue.put_marker(element)
            put.append(element)
        else:
            put.append(InFlight(element, 0))
            queue.put(put[-1])
    return put


def _shown(elements: Any) -> list[Any]:
    return [one.value if isinstance(one, InFlight) else one for one in elements]


@pytest.mark.parametrize("queue", [OrderedQueue[InFlight](), UnorderedQueue[InFlight]()])
def test_a_marker_in_an_empty_queue_passes_at_once(queue: AsyncQueue[InFlight]) -> None:
    assert queue.is_empty
    queue.put_marker(Watermark(1))
    assert not queue.is_empty
    assert queue.take_ready() == [Watermark(1)]
    assert queue.is_empty


def test_an_ordered_queue_waits_for_the_oldest_input() -> None:
    queue = OrderedQueue[InFlight]()
    first, second, _ = _filled(queue, 1, 2, Watermark(7))
    queue.complete(second, [])
    assert queue.take_ready() == []
    assert _shown(queue.inputs()) == [1, 2]
    queue.complete(first, [])
    assert _shown(queue.take_ready()) == [1, 2, Watermark(7)]
    assert queue.is_empty


def test_an_unordered_queue_gives_what_is_done_first_but_nothing_across_a_watermark() -> None:
    queue = UnorderedQueue[InFlight]()
    one, two, _, three, four = _filled(queue, 1, 2, Watermark(7), 3, 4)
    queue.complete(four, [])
    assert queue.take_ready() == []
    queue.complete(two, [])
    assert _shown(queue.take_ready()) == [2]
    assert _shown(queue.inputs()) == [1, 3, 4]
    queue.complete(one, [])
    assert _shown(queue.take_ready()) == [1, Watermark(7), 4]
    queue.complete(three, [])
    assert _shown(queue.take_ready()) == [3]
    assert queue.is_empty


def test_markers_that_follow_each_other_stay_in_order() -> None:
    queue = UnorderedQueue[InFlight]()
    (one, *_) = _filled(queue, 1, Watermark(1), Watermark(2))
    queue.complete(one, [])
    assert _shown(queue.take_ready()) == [1, Watermark(1), Watermark(2)]


OPERATIONS = st.lists(
    st.one_of(
        st.just(("put", 0)),
        st.just(("marker", 0)),
        st.tuples(st.just("complete"), st.integers(0, 100)),
        st.just(("take", 0)),
    ),
    max_size=60,
)


def _run(
    queue: AsyncQueue[InFlight], operations: list[tuple[str, int]]
) -> tuple[list[Element], list[Element], list[InFlight]]:
    """Carry out the operations, then complete and take all that is left: (what was put, taken, order of completion).

    After each step the queue's inputs are those that were put and not taken, in order.
    """
    put: list[Element] = []
    taken: list[Element] = []
    completed: list[InFlight] = []
    pending: list[InFlight] = []
    for name, number in [*operations, *[("complete", 0)] * len(operations), ("take", 0)]:
        if name == "put":
            element = InFlight(len(put), 0)
            queue.put(element)
            put.append(element)
            pending.append(element)
        elif name == "marker":
            marker = Watermark(len(put))
            queue.put_marker(marker)
            put.append(marker)
        elif name == "complete" and pending:
            element = pending.pop(number % len(pending))
            queue.complete(element, [element.value])
            completed.append(element)
        elif name == "take":
            taken += queue.take_ready()
        left = [one for one in put if one not in taken]
        assert queue.inputs() == [one for one in left if isinstance(one, InFlight)]
        assert queue.is_empty == (not left)
    return put, taken, completed


@given(OPERATIONS)
def test_an_ordered_queue_gives_everything_once_and_in_order(
    operations: list[tuple[str, int]],
) -> None:
    put, taken, _ = _run(OrderedQueue[InFlight](), operations)
    assert taken == put


@given(OPERATIONS)
def test_an_unordered_queue_gives_everything_once_and_no_watermark_overtakes_or_is_overtaken(
    operations: list[tuple[str, int]],
) -> None:
    put, taken, _ = _run(UnorderedQueue[InFlight](), operations)
    assert len(taken) == len(put)
    assert _segments(taken) == _segments(put)


def _segments(elements: list[Element]) -> list[Any]:
    """Markers in order, and between them sets of inputs."""
    segments: list[Any] = [set()]
    for element in elements:
        if isinstance(element, InFlight):
            segments[-1].add(element)
        else:
            segments += [element, set()]
    return segments


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.data())
def test_an_unordered_queue_holds_nothing_back_that_may_go(
    kinds: list[bool], data: st.DataObject
) -> None:
    queue = UnorderedQueue[InFlight]()
    elements = _filled(
        queue, *[n if is_input else Watermark(n) for n, is_input in enumerate(kinds)]
    )
    inputs = [one for one in elements if isinstance(one, InFlight)]
    completed: set[Any] = set()
    taken = list(queue.take_ready())
    for element in data.draw(st.permutations(inputs)):
        queue.complete(element, [])
        completed.add(element)
        taken += queue.take_ready()
        for index, one in enumerate(elements):
            before = [e for e in elements[:index] if isinstance(e, InFlight)]
            markers = [i for i in range(index) if isinstance(elements[i], Watermark)]
            if isinstance(one, InFlight):
                held_by = before[: _inputs_before(elements, markers[-1])] if markers else []
                may_go = one in completed and completed.issuperset(held_by)
            else:
                may_go = completed.issuperset(before)
            assert (one in taken) == may_go


def _inputs_before(elements: list[Any], index: int) -> int:
    return sum(isinstance(one, InFlight) for one in elements[:index])
