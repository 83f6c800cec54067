"""CommitLedger: every piece of prepared output is committed once, under one id, whatever is repeated or lost."""

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.checkpoint.metadata import CheckpointMetadata, PendingCommit
from headrace.cluster.job_master.checkpointing.commits.commit_ledger import CommitLedger
from tests.unit.cluster.job_master.checkpointing.commits.committing_metadata import (
    SINK,
    committable,
    metadata,
    sent_keys,
)


def publish(ledger: CommitLedger, acknowledged: CheckpointMetadata) -> CheckpointMetadata:
    completed = ledger.complete(acknowledged)
    ledger.published(completed, sent_keys(acknowledged))
    return completed


def numbers_of(commit: PendingCommit | None) -> list[int]:
    assert commit is not None
    return [int(each.content) for each in commit.committables]


def test_what_is_sent_again_belongs_to_the_checkpoint_that_had_it_first() -> None:
    ledger = CommitLedger([SINK])
    publish(ledger, metadata(1, [1], [2]))
    completed = publish(ledger, metadata(2, [1, 3], [2]))
    assert completed.pending_commits == (PendingCommit(1, SINK, (committable(1), committable(2))),)
    assert [s.committables for s in completed.operators[0].subtasks.values()] == [
        (committable(3),),
        (),
    ]
    assert numbers_of(ledger.next_of(SINK)) == [1, 2]
    ledger.committed(SINK, 1)
    assert numbers_of(ledger.next_of(SINK)) == [3]


def test_what_is_committed_already_and_sent_again_is_in_no_later_checkpoint() -> None:
    ledger = CommitLedger([SINK])
    publish(ledger, metadata(1, [1]))
    ledger.committed(SINK, 1)
    completed = publish(ledger, metadata(2, [1]))
    assert not completed.operators[0].has_state and completed.pending_commits == ()
    assert ledger.next_of(SINK) is None


def test_what_was_prepared_for_a_checkpoint_that_came_to_nothing_goes_with_the_next() -> None:
    ledger = CommitLedger([SINK])
    ledger.complete(metadata(1, [1]))
    completed = publish(ledger, metadata(2, [1, 2]))
    assert numbers_of(ledger.next_of(SINK)) == [1, 2] and completed.pending_commits == ()


def test_a_restored_job_commits_all_that_may_not_be_with_the_original_ids_in_order() -> None:
    ledger = CommitLedger([SINK])
    publish(ledger, metadata(1, [1]))
    publish(ledger, metadata(2, [1, 2]))
    completed = publish(ledger, metadata(4, [2, 3]))
    restored = CommitLedger([SINK])
    restored.restore(completed)
    found: list[tuple[int, list[int]]] = []
    while (pending := restored.next_of(SINK)) is not None:
        found.append((pending.checkpoint_id, numbers_of(pending)))
        restored.committed(SINK, pending.checkpoint_id)
    assert found == [(1, [1]), (2, [2]), (4, [3])]


def test_the_ledger_says_what_waits() -> None:
    ledger = CommitLedger([SINK])
    assert ledger.undecided_ids == () and ledger.blocking_sinks == ()
    publish(ledger, metadata(1, [1]))
    publish(ledger, metadata(2, [2]))
    assert ledger.undecided_ids == (1, 2) and ledger.blocking_sinks == (SINK,)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("prepare"), st.integers(0, 1)),
            st.tuples(st.just("checkpoint"), st.booleans()),
            st.tuples(st.just("notify"), st.integers(0, 1)),
            st.tuples(st.just("commit")),
            st.tuples(st.just("crash")),
        ),
        max_size=60,
    )
)
# What is committed is still sent, with two more checkpoints: it must not be forgotten meanwhile.
@example(
    [
        ("prepare", 0),
        ("checkpoint", True),
        ("commit",),
        ("checkpoint", True),
        ("checkpoint", True),
    ]
)
def test_all_output_of_a_published_checkpoint_is_committed_once_and_in_order(
    steps: list[tuple[object, ...]],
) -> None:
    """Against a model: two subtasks, an external system that knows ids, and a store that survives crashes."""
    ledger = CommitLedger([SINK])
    stored: CheckpointMetadata | None = None
    undecided: list[list[tuple[int, int]]] = [[], []]  # (checkpoint at which it was sent, number)
    external: dict[int, list[int]] = {}
    must_be_visible: set[int] = set()
    last_id = last_published = number = 0

    def commit_one() -> bool:
        pending = ledger.next_of(SINK)
        if pending is None:
            return False
        known = external.setdefault(pending.checkpoint_id, numbers_of(pending))
        assert known == numbers_of(pending), "one key, one content"
        assert pending.checkpoint_id == max(external), "ids in order"
        ledger.committed(SINK, pending.checkpoint_id)
        return True

    for step in steps:
        match step:
            case ("prepare", int(index)):
                number += 1
                undecided[index].append((0, number))
            case ("checkpoint", bool(succeeds)):
                last_id += 1
                undecided = [[(at or last_id, n) for at, n in each] for each in undecided]
                acknowledged = metadata(last_id, *([n for _, n in each] for each in undecided))
                if succeeds:
                    stored = publish(ledger, acknowledged)
                    last_published = last_id
                    must_be_visible |= {n for each in undecided for _, n in each}
            case ("notify", int(index)):
                kept = [(at, n) for at, n in undecided[index] if not 0 < at <= last_published]
                undecided[index] = kept
            case ("commit",):
                commit_one()
            case _:
                undecided = [[], []]
                ledger = CommitLedger([SINK])
                ledger.restore(stored)
                # What is pending is committed before tasks run; the external system may have it already.
                while commit_one_again(ledger, external):
                    pass
    while commit_one():
        pass
    visible = [n for each in external.values() for n in each]
    assert sorted(visible) == sorted(must_be_visible)


def commit_one_again(ledger: CommitLedger, external: dict[int, list[int]]) -> bool:
    """Commit what is next, or find that the external system has it: with the same content."""
    pending = ledger.next_of(SINK)
    if pending is None:
        return False
    known = external.setdefault(pending.checkpoint_id, numbers_of(pending))
    assert known == numbers_of(pending)
    ledger.committed(SINK, pending.checkpoint_id)
    return True
