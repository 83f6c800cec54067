"""Trees of stacks: made, merged, and cut where they would be too big."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.process.flame_graph import EMPTY, FlameGraphNode, Stack, flame_graph, merged

frames = st.sampled_from(["m.f:1", "m.g:2", "m.h:3"])
stacks = st.dictionaries(st.lists(frames, max_size=5).map(tuple), st.integers(0, 20), max_size=12)


def nodes(graph: FlameGraphNode) -> list[FlameGraphNode]:
    return [graph, *(below for child in graph.children for below in nodes(child))]


def test_stacks_share_the_frames_that_they_have_in_common() -> None:
    graph = flame_graph({("a", "b"): 3, ("a", "c"): 1, ("a",): 2})
    assert graph == FlameGraphNode(
        "root",
        6,
        (FlameGraphNode("a", 6, (FlameGraphNode("b", 3), FlameGraphNode("c", 1))),),
    )


def test_a_frame_that_calls_itself_stands_below_itself() -> None:
    graph = flame_graph({("a", "a"): 1, ("a",): 1})
    assert graph.children == (FlameGraphNode("a", 2, (FlameGraphNode("a", 1),)),)


def test_no_stacks_and_stacks_without_samples_give_the_empty_graph() -> None:
    assert flame_graph({}) == flame_graph({("a",): 0}) == merged([]) == EMPTY


def test_a_graph_that_is_too_big_loses_its_rarest_frames_and_keeps_its_sums() -> None:
    graph = flame_graph({("a", "b"): 5, ("a", "c"): 3, ("d",): 1}, node_count_max=3)
    assert graph == FlameGraphNode("root", 9, (FlameGraphNode("a", 8, (FlameGraphNode("b", 5),)),))


@given(stacks, st.integers(1, 30))
def test_every_graph_is_bounded_and_no_frame_has_less_than_what_it_calls(
    counts: dict[Stack, int], node_count_max: int
) -> None:
    graph = flame_graph(counts, node_count_max)
    assert graph.value == sum(counts.values())
    found = nodes(graph)
    assert len(found) <= node_count_max
    assert all(each.value >= sum(child.value for child in each.children) for each in found)


@given(stacks, stacks)
def test_merging_graphs_is_as_counting_their_stacks_together(
    one: dict[Stack, int], other: dict[Stack, int]
) -> None:
    together = flame_graph(dict(Counter(one) + Counter(other)))
    assert merged([flame_graph(one), flame_graph(other)]) == together


def test_a_graph_of_the_greatest_depth_passes_the_wire() -> None:
    graph = flame_graph({tuple(f"m.f:{line}" for line in range(300)): 1})
    encoded = msgspec.msgpack.encode(graph)
    assert msgspec.msgpack.decode(encoded, type=FlameGraphNode) == graph
