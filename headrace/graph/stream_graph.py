"""StreamGraph: the user's program, one node per operator, frozen.

Union, partitioning and side outputs are not nodes: they are folded into the edges. Edges are joined to nodes by id;
ids grow in the order in which the program made its operators.
Source: Flink StreamGraph, StreamNode, StreamEdge.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from headrace.core.ids import ClusterDataSetId
from headrace.core.operator_spec import OperatorSpec, OperatorTypes
from headrace.core.resource_profile import ResourceProfile
from headrace.graph.job_graph import PartitionerKind

DEFAULT_SLOT_SHARING_GROUP: Final = "default"


class ChainingStrategy(enum.Enum):
    """Ways in which an operator may be chained with its neighbours. Source: Flink ChainingStrategy."""

    ALWAYS = "ALWAYS"
    HEAD = "HEAD"
    HEAD_WITH_SOURCES = "HEAD_WITH_SOURCES"
    NEVER = "NEVER"


class NodeRole(enum.Enum):
    """Role of a node in the plan; the value is its name in Flink's plan view."""

    SOURCE = "Data Source"
    OPERATOR = "Operator"
    SINK = "Data Sink"


@dataclass(frozen=True)
class Partitioning:
    """Distribution of rows over the consumers; `custom` is the user's (partitioner, key selector) of CUSTOM."""

    kind: PartitionerKind
    custom: tuple[Any, Any] | None = None


@dataclass(frozen=True)
class StreamNode:
    """One operator as the program described it.

    `max_parallelism` is None until the job graph decides. `is_function` marks operators around user functions that
    plans may show merged with their neighbours. `is_bounded` is False for a source without an end. `location` is the
    file and line of the user's program that made the operator. `cached_input` is the data set of an earlier job that
    the node reads instead of running the operators that made it.
    """

    node_id: int
    name: str
    spec: OperatorSpec
    types: OperatorTypes
    parallelism: int
    max_parallelism: int | None = None
    role: NodeRole = NodeRole.OPERATOR
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    slot_sharing_group: str = DEFAULT_SLOT_SHARING_GROUP
    uid: str | None = None
    uid_hash: str | None = None
    description: str = ""
    is_function: bool = False
    is_bounded: bool = True
    location: str = ""
    cached_input: ClusterDataSetId | None = None

    @property
    def display_name(self) -> str:
        """Return the name in vertices, plans and metrics, which marks sources and sinks."""
        prefix = {NodeRole.SOURCE: "Source: ", NodeRole.SINK: "Sink: "}.get(self.role, "")
        return prefix + self.name


@dataclass(frozen=True)
class StreamEdge:
    """An edge from the output (or side output) of one node to input `input_number` of another.

    A union is several edges of one input number. `is_kept`: True if its rows are also stored for later jobs.
    """

    source_id: int
    target_id: int
    input_number: int
    partitioning: Partitioning
    buffer_timeout_ms: int
    side_output_tag: str | None = None
    is_kept: bool = False


@dataclass(frozen=True)
class StreamGraph:
    """Nodes by ascending id and edges in the order in which inputs were attached.

    `assumed_parallelism`: the placeholder for the executor's parallelism in the nodes, if that is not known.
    `slot_resources`: resources of slot sharing groups whose slots have a size of their own, by name.
    """

    job_name: str
    nodes: tuple[StreamNode, ...]
    edges: tuple[StreamEdge, ...]
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    assumed_parallelism: int | None = None
    slot_resources: Mapping[str, ResourceProfile] = field(
        default_factory=dict[str, ResourceProfile]
    )

    @cached_property
    def _nodes_by_id(self) -> dict[int, StreamNode]:
        return {node.node_id: node for node in self.nodes}

    @cached_property
    def _edges_by_target(self) -> dict[int, tuple[StreamEdge, ...]]:
        found: dict[int, list[StreamEdge]] = {}
        for edge in self.edges:
            found.setdefault(edge.target_id, []).append(edge)
        return {
            target: tuple(sorted(edges, key=lambda edge: edge.input_number))
            for target, edges in found.items()
        }

    @cached_property
    def _edges_by_source(self) -> dict[int, tuple[StreamEdge, ...]]:
        found: dict[int, list[StreamEdge]] = {}
        for edge in self.edges:
            found.setdefault(edge.source_id, []).append(edge)
        return {source: tuple(edges) for source, edges in found.items()}

    def node(self, node_id: int) -> StreamNode:
        """Return the node with this id; KeyError if there is none."""
        return self._nodes_by_id[node_id]

    def edges_into(self, node_id: int) -> tuple[StreamEdge, ...]:
        """Return the edges that the node consumes, ordered by input number, then as attached."""
        return self._edges_by_target.get(node_id, ())

    def edges_out_of(self, node_id: int) -> tuple[StreamEdge, ...]:
        """Return the edges that the node produces, in the order in which consumers were attached."""
        return self._edges_by_source.get(node_id, ())

    def topological_order(self) -> tuple[StreamNode, ...]:
        """Return the nodes, producers first; the smallest id first among those whose producers precede.

        A program makes operators after their inputs, so ascending ids are such an order already.
        """
        assert all(edge.source_id < edge.target_id for edge in self.edges)
        return self.nodes

    def __str__(self) -> str:
        lines = [f"StreamGraph '{self.job_name}': {len(self.nodes)} operators"]
        for node in self.nodes:
            uid = f", uid '{node.uid}'" if node.uid else ""
            lines.append(
                f"  {node.node_id}: {node.display_name} (parallelism {node.parallelism}{uid})"
            )
            lines += [f"      <- {describe_edge(edge)}" for edge in self.edges_into(node.node_id)]
        return "\n".join(lines)


def describe_edge(edge: StreamEdge) -> str:
    """Describe producer, partitioning and side output of an edge briefly."""
    side = f" side output '{edge.side_output_tag}'" if edge.side_output_tag else ""
    return f"{edge.source_id}{side} {edge.partitioning.kind.value}, input {edge.input_number}"
