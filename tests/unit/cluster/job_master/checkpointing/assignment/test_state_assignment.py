import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.errors import (
    FinishedOperatorsError,
    MaxParallelismError,
    UnclaimedStateError,
)
from headrace.checkpoint.handles import (
    ITEM_COUNT,
    ITEM_RANGE,
    NO_FILE,
    OUTPUT_WATERMARK,
    WATERMARK,
    Committable,
    OperatorSubtaskState,
    StateChunk,
    StateFile,
    StateTable,
    SubtaskRestore,
)
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot
from headrace.cluster.job_master.checkpointing.assignment.operator_state_repartitioner import (
    deal_items,
)
from headrace.cluster.job_master.checkpointing.assignment.state_assignment import assign_state
from headrace.core.barriers import SnapshotKind
from headrace.core.ids import ExecutionVertexId, JobId, JobVertexId, OperatorId
from headrace.core.key_groups import key_group_range
from headrace.graph.job_graph import ChainedOperator, JobGraph, JobVertex, VertexKind
from headrace.graph.operator_ids import uid_hash_of

COUNT = uid_hash_of("counter")
VERTEX = JobVertexId(COUNT.value)


def operator(uid: str | None = "counter", operator_id: OperatorId = COUNT) -> ChainedOperator:
    return ChainedOperator(operator_id, uid or "map", "map", b"", b"", uid)


def graph(
    parallelism: int = 2,
    max_parallelism: int = 8,
    *operators: ChainedOperator,
    derived: bool = False,
) -> JobGraph:
    vertex = JobVertex(
        VERTEX, "count", VertexKind.ONE_INPUT, parallelism, max_parallelism, "default",
        operators or (operator(),), (), None, derived,
    )  # fmt: skip
    return JobGraph(JobId(b"j" * 16), "job", (vertex,), (), {})


def metadata(*operators: OperatorSnapshot) -> CheckpointMetadata:
    return CheckpointMetadata(
        7, SnapshotKind.CHECKPOINT, 0, JobId(b"j" * 16), "job", "1a", 1, operators
    )


def snapshot(
    *states: tuple[StateChunk, ...], max_parallelism: int = 8, operator_id: OperatorId = COUNT
) -> OperatorSnapshot:
    subtasks = {index: OperatorSubtaskState(chunks) for index, chunks in enumerate(states)}
    return OperatorSnapshot(operator_id, "count", len(states), max_parallelism, "counter", subtasks)


def chunk(table: StateTable, name: str, content: bytes = b"", **more: object) -> StateChunk:
    return StateChunk(table, name, 1, StateFile("", content, len(content), b""), **more)


def keyed(name: str, first: int, last: int) -> StateChunk:
    return chunk(StateTable.KEYED, name, key_groups=(first, last))


def items(name: str, count: int, mode: str = "SPLIT", content: bytes = b"") -> StateChunk:
    attributes = {ITEM_COUNT: str(count), "mode": mode}
    return chunk(StateTable.OPERATOR, name, content, attributes=attributes)


def watermark(value: int, sent: int) -> StateChunk:
    attributes = {WATERMARK: str(value), OUTPUT_WATERMARK: str(sent)}
    return StateChunk(StateTable.WATERMARKS, "", 0, NO_FILE, None, attributes)


def restores(assigned_graph: JobGraph, snapshots: CheckpointMetadata) -> list[SubtaskRestore]:
    found = assign_state(assigned_graph, snapshots).subtasks
    return [found[ExecutionVertexId(VERTEX, index)] for index in range(len(found))]


def chunks_of(assigned_graph: JobGraph, *operators: OperatorSnapshot) -> list[list[StateChunk]]:
    found = restores(assigned_graph, metadata(*operators))
    return [list(one.state_of(COUNT).chunks) for one in found]


def test_at_the_same_parallelism_everything_stays_where_it_was() -> None:
    first = (keyed("a", 0, 3), items("b", 2), watermark(5, 4))
    second = (keyed("a", 4, 7), items("b", 9), watermark(6, 6))
    assert chunks_of(graph(2), snapshot(first, second)) == [list(first), list(second)]


def test_keyed_state_follows_its_key_groups() -> None:
    old = snapshot((keyed("a", 0, 1), keyed("b", 2, 3)), (keyed("a", 4, 7),))
    assert chunks_of(graph(4), old) == [
        [keyed("a", 0, 1)],
        [keyed("b", 2, 3)],
        [keyed("a", 4, 7)],
        [keyed("a", 4, 7)],
    ]
    assert chunks_of(graph(1), old) == [[keyed("a", 0, 1), keyed("b", 2, 3), keyed("a", 4, 7)]]


def test_timers_and_columns_follow_their_key_groups_too() -> None:
    timers = chunk(StateTable.TIMERS, "timers", key_groups=(6, 7))
    columns = chunk(StateTable.COLUMNAR, "sums", key_groups=(0, 7))
    assert chunks_of(graph(2), snapshot((timers, columns))) == [[columns], [timers, columns]]


def test_every_subtask_knows_what_it_was_restored_from() -> None:
    found = restores(graph(3), metadata())
    assert [(one.checkpoint_id, one.operators, one.is_finished) for one in found] == [
        (7, {}, False)
    ] * 3


def test_what_was_prepared_for_sinks_is_committed_by_the_driver_and_not_handed_out() -> None:
    state = OperatorSubtaskState((keyed("a", 0, 7),), (Committable("k", b"x"),))
    old = OperatorSnapshot(COUNT, "count", 1, 8, "counter", {0: state})
    (found,) = restores(graph(1), metadata(old))
    assert found.state_of(COUNT).committables == ()


def test_event_time_goes_on_from_the_least_of_the_subtasks_whose_keys_come() -> None:
    old = snapshot(
        (keyed("a", 0, 1), watermark(50, 40)),
        (watermark(60, 30),),
        (watermark(10, 10),),
        (watermark(20, 5),),
    )
    first, second = chunks_of(graph(2), old)
    assert first[-1] == watermark(50, 30)
    assert second[-1] == watermark(10, 5)


def test_without_keys_event_time_goes_on_from_the_least_of_all() -> None:
    old = snapshot((watermark(50, 40),), (watermark(60, 30),))
    assert chunks_of(graph(4), old) == [[watermark(50, 30)]] * 4


def test_a_finished_subtask_holds_nobodys_event_time_back() -> None:
    old = msgspec.structs.replace(
        snapshot((watermark(50, 40),), ()), finished_subtasks=frozenset({1})
    )
    assert chunks_of(graph(1), old) == [[watermark(50, 40)]]


def test_state_that_nobody_claims_is_refused_with_its_uid() -> None:
    gone = msgspec.structs.replace(
        snapshot((keyed("a", 0, 7),), operator_id=OperatorId(b"x" * 16)), name="old", uid="old-uid"
    )
    with pytest.raises(UnclaimedStateError, match=r"'old' \(uid 'old-uid'\).*the job has counter"):
        assign_state(graph(), metadata(gone))
    assignment = assign_state(graph(), metadata(gone), ignores_unclaimed=True)
    assert assignment.left_behind == (gone,)
    assert [operator.uid for operator in assignment.without_state] == ["counter"]


def test_an_operator_without_state_may_go() -> None:
    for states in ((), ((watermark(50, 40),),)):
        gone = snapshot(*states, operator_id=OperatorId(b"x" * 16))
        assert assign_state(graph(), metadata(gone)).left_behind == ()


def test_output_of_a_sink_that_is_gone_is_state() -> None:
    state = OperatorSubtaskState((), (Committable("k", b"x"),))
    gone = OperatorSnapshot(OperatorId(b"x" * 16), "sink", 1, 8, None, {0: state})
    with pytest.raises(UnclaimedStateError, match="no uid"):
        assign_state(graph(), metadata(gone))


def test_a_raw_hash_comes_before_the_uid() -> None:
    raw = OperatorId(b"r" * 16)
    described = operator("counter", raw)
    both = metadata(
        snapshot((keyed("old", 0, 7),)), snapshot((keyed("raw", 0, 7),), operator_id=raw)
    )
    found = assign_state(graph(1, 8, described), both, ignores_unclaimed=True).subtasks
    assert found[ExecutionVertexId(VERTEX, 0)].state_of(raw).chunks == (keyed("raw", 0, 7),)
    by_uid = assign_state(graph(1, 8, described), metadata(snapshot((keyed("old", 0, 7),))))
    chunks = by_uid.subtasks[ExecutionVertexId(VERTEX, 0)].state_of(raw).chunks
    assert chunks == (keyed("old", 0, 7),)


def test_a_max_parallelism_that_nobody_stated_is_taken_over() -> None:
    old = snapshot((keyed("a", 0, 7),))
    assigned = assign_state(graph(4, 128, derived=True), metadata(old))
    assert assigned.graph.vertices[0].max_parallelism == 8
    chunks = [one.state_of(COUNT).chunks for one in assigned.subtasks.values()]
    assert chunks == [(keyed("a", 0, 7),)] * 4


def test_another_max_parallelism_is_refused() -> None:
    old = metadata(snapshot((keyed("a", 0, 7),)))
    with pytest.raises(MaxParallelismError, match="set its max parallelism to 8"):
        assign_state(graph(4, 128), old)
    with pytest.raises(MaxParallelismError, match="parallelism 9: use at most 8"):
        assign_state(graph(9, 128, derived=True), old)


def test_without_keyed_state_the_max_parallelism_is_free() -> None:
    old = metadata(snapshot((items("a", 2),)))
    assert assign_state(graph(9, 128), old).graph.vertices[0].max_parallelism == 128


def test_coordinators_have_their_state_back() -> None:
    old = msgspec.structs.replace(snapshot(()), coordinator_state=b"splits")
    assert assign_state(graph(), metadata(old)).coordinator_states == {COUNT: b"splits"}


def test_a_finished_vertex_is_finished_at_any_parallelism() -> None:
    old = OperatorSnapshot(COUNT, "count", 2, 8, "counter", {}, frozenset({0, 1}))
    assert [one.is_finished for one in restores(graph(3), metadata(old))] == [True] * 3


def test_a_partly_finished_vertex_goes_on() -> None:
    old = OperatorSnapshot(COUNT, "count", 2, 8, "counter", {}, frozenset({0}))
    assert [one.is_finished for one in restores(graph(2), metadata(old))] == [False] * 2


def test_nothing_is_chained_to_what_had_finished() -> None:
    old = OperatorSnapshot(COUNT, "count", 1, 8, "counter", {}, frozenset({0}))
    new = operator("new", uid_hash_of("new"))
    with pytest.raises(FinishedOperatorsError, match=r"'count' \(uid 'counter'\) had finished"):
        assign_state(graph(1, 8, operator(), new), metadata(old))


def ranges(dealt: list[list[StateChunk]]) -> list[list[tuple[str, bytes, str]]]:
    return [
        [(one.name, one.file.content, one.attributes.get(ITEM_RANGE, "all")) for one in chunks]
        for chunks in dealt
    ]


def test_items_are_split_as_in_the_manual() -> None:
    old = [
        [items("s", 3, content=b"0"), items("t", 1, content=b"0")],
        [items("s", 2, content=b"1"), items("t", 1, content=b"1")],
    ]
    assert ranges(deal_items(old, 3)) == [
        [("s", b"0", "0:2"), ("t", b"1", "all")],
        [("s", b"0", "2:3"), ("s", b"1", "0:1")],
        [("s", b"1", "1:2"), ("t", b"0", "all")],
    ]


def test_a_union_goes_to_everybody() -> None:
    old = [[items("u", 1, "UNION", b"0")], [], [items("u", 2, "UNION", b"2")]]
    assert ranges(deal_items(old, 2)) == [[("u", b"0", "all"), ("u", b"2", "all")]] * 2


def test_everybody_has_one_copy_of_a_broadcast() -> None:
    old = [[items("b", 5, "BROADCAST", b"0")], [], [items("b", 5, "BROADCAST", b"2")]]
    copies = [one[0][1] for one in ranges(deal_items(old, 5))]
    assert copies == [b"0", b"2", b"2", b"0", b"0"]


COUNTS = st.lists(st.lists(st.integers(0, 7), min_size=2, max_size=2), min_size=1, max_size=5)


@given(counts=COUNTS, parallelism=st.integers(1, 6))
def test_a_split_keeps_every_item_and_is_even(counts: list[list[int]], parallelism: int) -> None:
    old = [
        [items(name, count, content=bytes([index])) for name, count in zip("st", row, strict=True)]
        for index, row in enumerate(counts)
    ]
    dealt = deal_items(old, parallelism)
    for name, total in (("s", sum(row[0] for row in counts)), ("t", sum(row[1] for row in counts))):
        shares = [own_items(chunks, name) for chunks in dealt]
        assert sorted(item for share in shares for item in share) == sorted(
            (bytes([index]), item)
            for index, row in enumerate(counts)
            for item in range(row["st".index(name)])
        )
        if parallelism != len(counts):
            assert {len(share) for share in shares} <= {
                total // parallelism,
                total // parallelism + 1,
            }


def own_items(chunks: list[StateChunk], name: str) -> list[tuple[bytes, int]]:
    found: list[tuple[bytes, int]] = []
    for one in chunks:
        if one.name == name:
            text = one.attributes.get(ITEM_RANGE, f"0:{one.attributes[ITEM_COUNT]}")
            first, _, last = text.partition(":")
            found += [(one.file.content, item) for item in range(int(first), int(last))]
    return found


@given(
    groups=st.sets(st.integers(0, 15)),
    first=st.integers(1, 16),
    second=st.integers(1, 16),
)
def test_rescaling_there_and_back_leaves_every_key_group_where_it_was(
    groups: set[int], first: int, second: int
) -> None:
    """One chunk per key group: what a subtask takes of its chunks is what is in its range."""
    held = held_by(groups, first)
    there = rescaled(held, second)
    assert there == held_by(groups, second)
    assert rescaled(there, first) == held


def held_by(groups: set[int], parallelism: int) -> list[set[int]]:
    spans = [key_group_range(index, parallelism, 16) for index in range(parallelism)]
    return [{group for group in groups if group in span} for span in spans]


def rescaled(held: list[set[int]], parallelism: int) -> list[set[int]]:
    old = snapshot(
        *(tuple(keyed("a", group, group) for group in sorted(one)) for one in held),
        max_parallelism=16,
    )
    return [
        {one.key_groups[0] for one in chunks if one.key_groups}
        for chunks in chunks_of(graph(parallelism, 16), old)
    ]


def test_records_in_flight_may_be_left_out_and_nothing_else_is() -> None:
    in_flight = StateChunk(StateTable.CHANNELS, "", 3, NO_FILE)
    kept = (keyed("a", 0, 7), watermark(50, 40))
    old = snapshot((*kept, in_flight))
    (operator,) = metadata(old).without_channel_state().operators
    assert operator == snapshot(kept)
