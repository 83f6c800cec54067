"""Timers by the clock over failures: each fires once, when its time is over, those that came due meanwhile at once."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.functions.process import TimeDomain
from headrace.testing.operator_harness import snapshot
from tests.unit.state.subtasks import Subtask

CLOCK = TimeDomain.PROCESSING_TIME
KEYS = st.sampled_from("abcd")
TIMES = st.integers(-2, 30)
Step = tuple[str, int, str]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), TIMES, KEYS),
        st.tuples(st.just("register"), TIMES, KEYS),
        st.tuples(st.just("delete"), TIMES, KEYS),
        st.tuples(st.just("pass"), st.integers(1, 8), st.just("")),
        st.tuples(st.just("fail"), st.integers(0, 8), st.sampled_from("123")),
    ),
    max_size=30,
)


class Job:
    """Subtasks with timers alone, and the wall clock."""

    def __init__(self, kind: str, scratch: str) -> None:
        self.kind, self.scratch = kind, scratch
        self.now_ms = 0
        self.waiting: set[tuple[int, str]] = set()
        self.subtasks = [Subtask(kind, scratch)]

    def perform(self, step: Step) -> None:
        match step:
            case ("register", time_ms, key):
                self.of(key).timers.register(CLOCK, time_ms)
                self.waiting.add((time_ms, key))
            case ("delete", time_ms, key):
                self.of(key).timers.delete(CLOCK, time_ms)
                self.waiting.discard((time_ms, key))
            case ("pass", by_ms, _):
                self.let_pass(by_ms)
            case (_, down_ms, parallelism):
                self.fail(down_ms, int(parallelism))

    def of(self, key: str) -> Subtask:
        (owner,) = [one for one in self.subtasks if one.owns(key)]
        owner.backend.set_current_key(key)
        return owner

    def let_pass(self, by_ms: int) -> None:
        self.now_ms += by_ms
        due = {timer for timer in self.waiting if timer[0] < self.now_ms}
        self.waiting -= due
        fired: list[tuple[int, str]] = []
        for one in self.subtasks:
            one.wall.advance_to(self.now_ms)
            assert [time_ms for time_ms, _, _ in one.fired] == sorted(
                time_ms for time_ms, _, _ in one.fired
            )
            fired += [(time_ms, key) for time_ms, key, _ in one.fired]
            one.fired.clear()
        assert sorted(fired) == sorted(due)

    def fail(self, down_ms: int, parallelism: int) -> None:
        parts = [snapshot(one.states) for one in self.subtasks]
        merged = OperatorSubtaskState(tuple(chunk for part in parts for chunk in part.chunks))
        self.close()
        self.now_ms += down_ms
        self.subtasks = [
            Subtask(self.kind, self.scratch, merged, parallelism, index, now_ms=self.now_ms)
            for index in range(parallelism)
        ]

    def close(self) -> None:
        for one in self.subtasks:
            one.states.close()


OVERDUE: list[Step] = [
    ("register", 5, "a"),
    ("register", 9, "b"),
    ("fail", 7, "2"),
    ("pass", 1, ""),
]


def assert_every_timer_fires_once(kind: str, scratch: str, steps: list[Step]) -> None:
    job = Job(kind, scratch)
    for step in steps:
        job.perform(step)
    job.let_pass(100)
    assert job.waiting == set()
    job.close()


@given(STEPS)
@example(OVERDUE)
def test_on_the_heap_each_fires_once_whenever_its_subtask_fails(steps: list[Step]) -> None:
    assert_every_timer_fires_once("hashmap", "", steps)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(STEPS)
@example(OVERDUE)
def test_in_rocksdb_each_fires_once_whenever_its_subtask_fails(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    assert_every_timer_fires_once("rocksdb", str(tmp_path_factory.mktemp("timers")), steps)
