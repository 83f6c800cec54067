"""Prepared output of a sink reaches a published checkpoint once, whichever fail and whenever that is heard of."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.checkpoint.handles import Committable, OperatorSubtaskState
from headrace.core.types.rows import Row
from headrace.functions.specs.operator_specs import SinkSpec
from headrace.testing.operator_harness import OperatorHarness, Rows
from tests.unit.operators.recutting_functions import ROW, StagingSink


class Job:
    """One subtask of a sink, the driver that commits what published checkpoints hold, and a source that repeats."""

    def __init__(self) -> None:
        self.harness = OperatorHarness(SinkSpec(StagingSink()), input_types=[ROW])
        self.attempt = self.position = self.checkpoint_id = 0
        self.committed: dict[tuple[int, str], bytes] = {}
        self.published: tuple[OperatorSubtaskState | None, int] = (None, 0)
        self.untold: list[int] = []

    def write(self, count: int) -> None:
        """The next `count` records come."""
        numbers = range(self.position, self.position + count)
        values = [Row(key="k", n=number) for number in numbers]
        self.harness.perform(Rows(values, list(numbers)))
        self.position += count

    def checkpoint(self, is_published: bool) -> None:
        """Take one; that it is published is told later, or never."""
        self.checkpoint_id += 1
        state = self.harness.snapshot()
        if is_published:
            self.commit(state.committables)
            self.published = (state, self.position)
            self.untold.append(self.checkpoint_id)

    def commit(self, committables: tuple[Committable, ...]) -> None:
        """What has come once counts once."""
        keys = [one.key for one in committables]
        assert len(set(keys)) == len(keys)
        for one in committables:
            key = (self.attempt, one.key)
            assert self.committed.setdefault(key, one.content) == one.content

    def tell(self, number: int, is_repeated: bool) -> None:
        """One of the completions arrives, of this attempt or an earlier one, in any order, perhaps to come again."""
        if self.untold:
            index = number % len(self.untold)
            told = self.untold[index]
            if not is_repeated:
                del self.untold[index]
            self.harness.operator.notify_checkpoint_complete(told)
            left = self.harness.operator.snapshot_state(self.checkpoint_id)
            assert told < self.checkpoint_id or not left, "what is decided is not carried on"

    def fail(self) -> None:
        """The attempt dies; the next one begins with what was published last."""
        self.attempt += 1
        state, self.position = self.published
        self.harness.restart(state)

    def end(self) -> None:
        """The input ends, and the last checkpoint is published."""
        self.harness.operator.finish(self.harness.output)
        last_id = self.checkpoint_id + 1
        self.commit(tuple(self.harness.operator.snapshot_state(last_id)))
        self.harness.operator.notify_checkpoint_complete(last_id)
        assert not self.harness.operator.snapshot_state(last_id + 1), "all is decided"
        self.harness.operator.close()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the committed records, in order of commit."""
        texts = "\n".join(content.decode() for content in self.committed.values() if content)
        return [int(line.split()[1]) for line in texts.splitlines()]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 4)),
        st.tuples(st.just("checkpoint"), st.booleans()),
        st.tuples(st.just("tell"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("fail")),
    ),
    min_size=5,
    max_size=25,
)
ABORTED: list[Any] = [
    ("write", 2),
    ("checkpoint", False),
    ("write", 1),
    ("checkpoint", True),
    ("tell", 0, True),
    ("checkpoint", True),
    ("fail",),
    ("tell", 0, False),
    ("write", 3),
    ("checkpoint", True),
]
LATE: list[Any] = [
    ("write", 1),
    ("checkpoint", True),
    ("write", 1),
    ("checkpoint", False),
    ("tell", 0, False),
    ("checkpoint", True),
]


@given(ACTIONS)
@example(LATE)
@example(ABORTED)
def test_every_record_is_committed_once_and_in_order(actions: list[Any]) -> None:
    job = Job()
    for name, *arguments in actions:
        getattr(job, name)(*arguments)
    job.end()
    assert job.numbers == list(range(job.position))
