import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.graph.job_graph import PartitionerKind
from headrace.graph.operator_ids import DuplicateUidError, murmur3_128, operator_ids
from headrace.graph.stream_graph import ChainingStrategy, StreamGraph
from tests.unit.graph.graphs import edge, graph, line, node, source, stream_graphs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "00000000000000000000000000000000"),
        ("hello", "029bbd41b3a7d8cb191dae486a901e5b"),
        ("The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be347939ac4a93c437a"),
    ],
)
def test_the_hash_is_murmur3_128_in_guavas_byte_order(text: str, expected: str) -> None:
    assert murmur3_128(text.encode()).hex() == expected


def test_an_operator_with_a_uid_has_the_id_of_that_uid() -> None:
    ids = operator_ids(graph([source(1), node(2, uid="hello")], [edge(1, 2)]))
    assert ids[2].hex() == "029bbd41b3a7d8cb191dae486a901e5b"


def test_a_uid_hash_wins_over_a_uid() -> None:
    ids = operator_ids(graph([source(1, uid="hello", uid_hash="0f" * 16)], []))
    assert ids[1].hex() == "0f" * 16


def test_two_operators_with_one_uid_are_an_error_that_names_both() -> None:
    twice = graph([source(1, "left", uid="x"), source(2, "right", uid="x")], [])
    with pytest.raises(DuplicateUidError, match=r"'x'.*Source: left, Source: right"):
        operator_ids(twice)


def test_ids_do_not_depend_on_chaining_or_parallelism() -> None:
    plain = operator_ids(line(4))
    assert operator_ids(line(4, chaining=ChainingStrategy.NEVER)) == plain
    assert operator_ids(line(4, parallelism=7, max_parallelism=512)) == plain
    assert operator_ids(line(4, slot_sharing_group="other")) == plain


def test_ids_do_not_depend_on_the_way_rows_travel() -> None:
    rebalanced = graph([source(1), node(2)], [edge(1, 2, PartitionerKind.REBALANCE)])
    assert operator_ids(rebalanced) == operator_ids(line(2))


def test_an_operator_added_downstream_changes_no_id() -> None:
    short, long = operator_ids(line(3)), operator_ids(line(4))
    assert {number: long[number] for number in short} == short


def test_an_operator_added_upstream_changes_ids_downstream_but_for_uids() -> None:
    before = operator_ids(
        graph([source(1), node(3, "m"), node(4, uid="u")], [edge(1, 3), edge(3, 4)])
    )
    after = operator_ids(
        graph(
            [source(1), node(2, "new"), node(3, "m"), node(4, uid="u")],
            [edge(1, 2), edge(2, 3), edge(3, 4)],
        )
    )
    assert before[1] == after[1] and before[4] == after[4]
    assert before[3] != after[3]


def test_a_side_output_is_not_the_main_output() -> None:
    main = operator_ids(line(2))
    side = operator_ids(graph([source(1), node(2)], [edge(1, 2, side_output_tag="late")]))
    assert main[1] == side[1] and main[2] != side[2]


def test_equal_branches_have_different_ids() -> None:
    twins = graph(
        [source(1, "s"), source(2, "s"), node(3, "m"), node(4, "m")], [edge(1, 3), edge(2, 4)]
    )
    assert len(set(operator_ids(twins).values())) == 4


@given(stream_graphs())
def test_ids_are_unique_and_the_same_every_time(stream_graph: StreamGraph) -> None:
    ids = operator_ids(stream_graph)
    assert len(set(ids.values())) == len(stream_graph.nodes)
    assert operator_ids(stream_graph) == ids


@given(st.permutations(["alpha", "beta", "gamma"]))
def test_independent_branches_may_be_written_in_any_order(names: list[str]) -> None:
    # The sources are equal; only what follows them tells them apart.
    def branches(order: list[str]) -> dict[str, tuple[str, str]]:
        nodes = [source(number, "s") for number in (1, 2, 3)]
        nodes += [node(4 + index, name) for index, name in enumerate(order)]
        stream_graph = graph(nodes, [edge(1 + index, 4 + index) for index in range(3)])
        ids = operator_ids(stream_graph)
        return {
            name: (str(ids[1 + index]), str(ids[4 + index])) for index, name in enumerate(order)
        }

    assert branches(names) == branches(["alpha", "beta", "gamma"])
