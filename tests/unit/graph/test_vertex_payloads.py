"""Payloads of vertices: what leaves a graph as a blob, and that it comes back as it was."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.ids import BlobKey
from headrace.graph.job_graph import (
    JobGraph,
    JobVertex,
    PartitionerKind,
    PartitionerSpec,
    VertexPayloads,
    blob_keys,
    offload,
    with_payloads,
)
from tests.unit.cluster.cluster_samples import edge, job_graph, vertex


def with_payload(plain: JobVertex, payload: bytes) -> JobVertex:
    operator = msgspec.structs.replace(plain.operators[0], payload=payload, types_payload=b"types")
    return msgspec.structs.replace(plain, operators=(operator,))


def graph_of(*sizes: int) -> JobGraph:
    vertices = tuple(
        with_payload(vertex(number, 1), bytes([number]) * size)
        for number, size in enumerate(sizes, 1)
    )
    custom = msgspec.structs.replace(
        edge(1, 2), partitioner=PartitionerSpec(PartitionerKind.CUSTOM, b"partitioner")
    )
    return job_graph(vertices, (custom,))


def test_a_small_graph_stays_as_it_is() -> None:
    graph = graph_of(10, 20)
    offloaded = offload(graph, 1_000)
    assert offloaded.graph is graph
    assert offloaded.blobs == {}


def test_the_largest_vertices_leave_until_the_rest_fits() -> None:
    offloaded = offload(graph_of(10, 5_000, 600), 700)
    first, second, third = offloaded.graph.vertices
    assert first.payloads is None
    assert second.payloads is not None
    assert third.payloads is None
    assert second.operators[0].payload == second.operators[0].types_payload == b""
    assert blob_keys(offloaded.graph) == tuple(offloaded.blobs)


def test_many_small_vertices_leave_too_where_they_are_too_much_together() -> None:
    offloaded = offload(graph_of(400, 400, 400), 900)
    assert [each.payloads is None for each in offloaded.graph.vertices].count(True) == 2


def test_a_partitioner_leaves_with_its_producer_and_comes_back() -> None:
    graph = graph_of(5_000, 1)
    offloaded = offload(graph, 100)
    assert offloaded.graph.edges[0].partitioner == PartitionerSpec(PartitionerKind.CUSTOM, b"")
    ((key, blob),) = offloaded.blobs.items()
    assert key == BlobKey.of(blob)
    payloads = VertexPayloads.decode(memoryview(blob))
    assert payloads.partitioners == (b"partitioner",)
    assert payloads.specs == (b"\x01" * 5_000,)
    assert payloads.types == (b"types",)
    assert with_payloads(offloaded.graph, offloaded.blobs.__getitem__) == graph


def test_equal_content_has_one_key_and_offloading_twice_changes_nothing() -> None:
    once = offload(graph_of(5_000, 1), 100)
    assert offload(graph_of(5_000, 1), 100).blobs.keys() == once.blobs.keys()
    assert offload(once.graph, 100).graph is once.graph


@given(st.lists(st.binary(max_size=50), max_size=4), st.lists(st.binary(max_size=50), max_size=4))
def test_payloads_survive_the_blob_whatever_they_are(
    specs: list[bytes], partitioners: list[bytes]
) -> None:
    payloads = VertexPayloads(tuple(specs), tuple(specs), tuple(partitioners))
    assert VertexPayloads.decode(memoryview(payloads.encode())) == payloads


@given(st.lists(st.integers(0, 3_000), min_size=2, max_size=5), st.integers(0, 4_000))
def test_what_stays_in_the_graph_is_never_more_than_allowed(sizes: list[int], limit: int) -> None:
    graph = offload(graph_of(*sizes), limit).graph
    assert (
        sum(
            VertexPayloads.of(each, graph.edges_out_of(each.vertex_id)).size_bytes
            for each in graph.vertices
        )
        <= limit
    )


@pytest.mark.parametrize("digest", [b"", b"short", b"x" * 33])
def test_a_key_that_is_no_hash_is_refused(digest: bytes) -> None:
    with pytest.raises(ValueError, match="no blob key"):
        BlobKey(digest, 1)
