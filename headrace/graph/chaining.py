"""Chaining: selects the edges of a StreamGraph that become calls inside one task, and cuts the graph into chains.

An edge A -> B is chained if and only if all of Flink's rules hold; `chain_breaks` returns the broken rules.
Source: Flink StreamingJobGraphGenerator.isChainable, isChainableInput.
"""

import enum
from dataclasses import dataclass

from headrace.core.config import Settings
from headrace.graph.job_graph import PartitionerKind
from headrace.graph.pipeline_options import CHAIN_DIFFERENT_MAX_PARALLELISM, OPERATOR_CHAINING
from headrace.graph.stream_graph import (
    ChainingStrategy,
    NodeRole,
    StreamEdge,
    StreamGraph,
    StreamNode,
)


class ChainBreak(enum.Enum):
    """A rule that keeps an edge from being chained.

    Flink's two other rules never apply here: every node has an operator, and no source pushes records from a thread of
    its own.
    """

    SEVERAL_INPUTS = "the consumer has several inputs"
    CHAINING_DISABLED = "chaining is off (pipeline.operator-chaining.enabled)"
    OTHER_SLOT_SHARING_GROUP = "slot sharing groups differ"
    PRODUCER_NEVER_CHAINS = "the producer disabled chaining"
    CONSUMER_NEVER_CHAINS = "the consumer disabled chaining"
    CONSUMER_STARTS_CHAIN = "the consumer starts a new chain"
    OTHER_PARALLELISM = "parallelism differs"
    OTHER_MAX_PARALLELISM = "max parallelism differs"
    EXCHANGE = "rows are redistributed"
    SEVERAL_EDGES = "several edges join the two operators"


@dataclass(frozen=True)
class ChainingRules:
    """The settings that the decision uses."""

    is_enabled: bool = True
    allows_different_max_parallelism: bool = True

    @classmethod
    def from_settings(cls, settings: Settings) -> "ChainingRules":
        """Read the rules from a job's settings."""
        return cls(
            settings.get_option(OPERATOR_CHAINING),
            settings.get_option(CHAIN_DIFFERENT_MAX_PARALLELISM),
        )


def chain_breaks(
    graph: StreamGraph, edge: StreamEdge, rules: ChainingRules
) -> tuple[ChainBreak, ...]:
    """Return every rule that keeps `edge` from being chained, in Flink's order; empty if it is chained."""
    source, target = graph.node(edge.source_id), graph.node(edge.target_id)
    inputs = graph.edges_into(target.node_id)
    broken: list[ChainBreak] = []
    if len(inputs) != 1:
        broken.append(ChainBreak.SEVERAL_INPUTS)
    if not rules.is_enabled:
        broken.append(ChainBreak.CHAINING_DISABLED)
    if source.slot_sharing_group != target.slot_sharing_group:
        broken.append(ChainBreak.OTHER_SLOT_SHARING_GROUP)
    broken += _strategy_breaks(source, target)
    if source.parallelism != target.parallelism:
        broken.append(ChainBreak.OTHER_PARALLELISM)
    if (
        not rules.allows_different_max_parallelism
        and source.max_parallelism != target.max_parallelism
    ):
        broken.append(ChainBreak.OTHER_MAX_PARALLELISM)
    if edge.partitioning.kind is not PartitionerKind.FORWARD:
        broken.append(ChainBreak.EXCHANGE)
    if sum(other.source_id == source.node_id for other in inputs) > 1:
        broken.append(ChainBreak.SEVERAL_EDGES)
    return tuple(broken)


def is_chainable(graph: StreamGraph, edge: StreamEdge, rules: ChainingRules) -> bool:
    """Return whether `edge` becomes a call inside one task."""
    return not chain_breaks(graph, edge, rules)


def explain_break(graph: StreamGraph, edge: StreamEdge, rules: ChainingRules) -> str:
    """Return a line with the reason why `edge` is not chained; empty if it is chained.

    The line includes the numbers and names that differ.
    """
    source, target = graph.node(edge.source_id), graph.node(edge.target_id)
    details = {
        ChainBreak.OTHER_SLOT_SHARING_GROUP: f"'{source.slot_sharing_group}' and "
        f"'{target.slot_sharing_group}'",
        ChainBreak.OTHER_PARALLELISM: f"{source.parallelism} and {target.parallelism}",
        ChainBreak.OTHER_MAX_PARALLELISM: f"{source.max_parallelism} and {target.max_parallelism}",
        ChainBreak.EXCHANGE: edge.partitioning.kind.value,
        ChainBreak.SEVERAL_INPUTS: str(len(graph.edges_into(target.node_id))),
    }
    return "; ".join(
        f"{broken.value} ({details[broken]})" if broken in details else broken.value
        for broken in chain_breaks(graph, edge, rules)
    )


def _strategy_breaks(source: StreamNode, target: StreamNode) -> list[ChainBreak]:
    broken: list[ChainBreak] = []
    if source.chaining is ChainingStrategy.NEVER:
        broken.append(ChainBreak.PRODUCER_NEVER_CHAINS)
    match target.chaining:
        case ChainingStrategy.NEVER:
            broken.append(ChainBreak.CONSUMER_NEVER_CHAINS)
        case ChainingStrategy.HEAD:
            broken.append(ChainBreak.CONSUMER_STARTS_CHAIN)
        case ChainingStrategy.HEAD_WITH_SOURCES if source.role is not NodeRole.SOURCE:
            broken.append(ChainBreak.CONSUMER_STARTS_CHAIN)
        case _:
            pass
    return broken


@dataclass(frozen=True)
class Chain:
    """Nodes that run in one task, `nodes[0]` is the head; `edges` join them."""

    nodes: tuple[StreamNode, ...]
    edges: tuple[StreamEdge, ...]

    @property
    def head(self) -> StreamNode:
        """Node that reads the task's inputs, or the source."""
        return self.nodes[0]


def build_chains(graph: StreamGraph, rules: ChainingRules) -> tuple[Chain, ...]:
    """Split the graph into chains, in topological order of their heads; every node is in exactly one."""
    chained = {edge.target_id: edge for edge in graph.edges if is_chainable(graph, edge, rules)}
    head_of: dict[int, int] = {}
    members: dict[int, list[StreamNode]] = {}
    for node in graph.topological_order():
        edge = chained.get(node.node_id)
        head = node.node_id if edge is None else head_of[edge.source_id]
        head_of[node.node_id] = head
        members.setdefault(head, []).append(node)
    return tuple(
        Chain(
            tuple(nodes),
            tuple(chained[node.node_id] for node in nodes[1:]),
        )
        for nodes in members.values()
    )
