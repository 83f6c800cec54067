"""JobGraph: the submitted form of a job: chains of operators joined by edges, frozen and ready for the wire.

User functions are opaque bytes here: only the task that runs them unpickles them. Functions, collections and types may
have a few bytes or many megabytes: above a bound these VertexPayloads leave the graph and become blobs, and the graph
keeps their keys. Source: Flink JobGraph, JobVertex, IntermediateDataSet, JobEdge, TaskInformation (offloaded).
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from headrace.core.ids import (
    BlobKey,
    ClusterDataSetId,
    IntermediateDataSetId,
    JobId,
    JobVertexId,
    OperatorId,
    size_text,
)
from headrace.core.resource_profile import UNSPECIFIED, ResourceProfile
from headrace.core.shuffle_descriptors import ResultPartitionType


class PartitionerKind(enum.Enum):
    """Ways in which an edge distributes rows; plans print these names."""

    FORWARD = "FORWARD"
    REBALANCE = "REBALANCE"
    RESCALE = "RESCALE"
    SHUFFLE = "SHUFFLE"
    BROADCAST = "BROADCAST"
    GLOBAL = "GLOBAL"
    HASH = "HASH"
    CUSTOM = "CUSTOM"

    @property
    def is_pointwise(self) -> bool:
        """Return whether a producer reaches only some of the consumers."""
        return self in (PartitionerKind.FORWARD, PartitionerKind.RESCALE)

    @property
    def lets_barriers_overtake(self) -> bool:
        """Return whether in-flight rows can be redistributed among other subtasks, so that a checkpoint may hold some.

        Pointwise and broadcast edges would lose order or equality, and the receivers do not have a user's partitioner.
        """
        is_other = self in (PartitionerKind.BROADCAST, PartitionerKind.CUSTOM)
        return not self.is_pointwise and not is_other


class PartitionerSpec(msgspec.Struct, frozen=True):
    """A partitioner; `payload` is the pickled `(partitioner, key_selector)` of CUSTOM, else empty."""

    kind: PartitionerKind
    payload: bytes = b""


class ChainedOperator(msgspec.Struct, frozen=True):
    """One operator of a chain.

    `payload` is the pickled OperatorSpec, `types_payload` the pickled OperatorTypes (input, output and side output
    types); both by cloudpickle. `coordinator` names the OperatorCoordinator that runs in the JobMaster (empty: none)
    and `coordinator_payload` is its payload; `committer` and `committer_payload` are those of the Committer that makes
    a sink's prepared output visible. `location` is the file and line of the user's function, for errors that arise
    before or after it runs.
    """

    operator_id: OperatorId
    name: str
    kind: str
    payload: bytes
    types_payload: bytes
    uid: str | None = None
    description: str = ""
    coordinator: str = ""
    coordinator_payload: bytes = b""
    committer: str = ""
    committer_payload: bytes = b""
    location: str = ""


class ChainEdge(msgspec.Struct, frozen=True):
    """An edge inside a chain: the output (or side output) of one operator is the input of the next."""

    source_id: OperatorId
    target_id: OperatorId
    side_output_tag: str | None = None


class JobEdge(msgspec.Struct, frozen=True):
    """An edge between two vertices, and the data set that the producer writes for it.

    `supports_unaligned`: True if barriers may overtake rows on it. Source: Flink StreamEdge.
    """

    data_set_id: IntermediateDataSetId
    source_vertex_id: JobVertexId
    source_operator_id: OperatorId
    target_vertex_id: JobVertexId
    target_operator_id: OperatorId
    input_number: int
    partitioner: PartitionerSpec
    result_type: ResultPartitionType
    buffer_timeout_ms: int
    side_output_tag: str | None = None
    supports_unaligned: bool = True


class VertexKind(enum.Enum):
    """Kinds of vertices, each run by a task class of its own."""

    SOURCE = "SOURCE"
    ONE_INPUT = "ONE_INPUT"
    TWO_INPUT = "TWO_INPUT"


class JobVertex(msgspec.Struct, frozen=True):
    """A chain of operators that runs as one task per subtask. `operators[0]` is the head.

    `has_derived_max_parallelism`: the program did not set the max parallelism, so that a restored job keeps its old
    one. If `payloads` is set, the payloads of the operators and of the outgoing edges' partitioners are in that blob,
    and empty here. `cached_input`: the data set of an earlier job that is its only input, one partition per subtask;
    None if it reads edges, or is a source.
    """

    vertex_id: JobVertexId
    name: str
    kind: VertexKind
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    operators: tuple[ChainedOperator, ...]
    chain_edges: tuple[ChainEdge, ...]
    payloads: BlobKey | None = None
    has_derived_max_parallelism: bool = False
    cached_input: ClusterDataSetId | None = None

    def subtask_name(self, subtask_index: int) -> str:
        """Return the name of a subtask for people, who count from one: `Map (2/4)`."""
        return f"{self.name} ({subtask_index + 1}/{self.parallelism})"


class ArtifactKind(enum.Enum):
    """Kinds of files shipped with a job."""

    FILE = "FILE"
    """A file that functions find by its name."""
    ARCHIVE = "ARCHIVE"
    """An archive that is unpacked on each host."""
    REQUIREMENTS = "REQUIREMENTS"
    """A requirements file, whose packages are installed on each host."""
    PACKAGES = "PACKAGES"
    """An archive with the only packages that may be installed for the requirements."""
    PYTHON_FILE = "PYTHON_FILE"
    """A module, or an archive of modules, that functions can import."""
    PYTHON_FOLDER = "PYTHON_FOLDER"
    """An archive of a folder of modules, which is unpacked on each host, and which functions can import."""


class JobArtifact(msgspec.Struct, frozen=True):
    """A file shipped with a job; its content is here in the client, and in the blob `key` elsewhere.

    `name` is its name for functions, `file_name` its own name. `is_cached_file`: it comes from `pipeline.cached-files`,
    not from `python.archives`.
    """

    kind: ArtifactKind
    name: str
    file_name: str
    content: bytes = b""
    key: BlobKey | None = None
    is_executable: bool = False
    is_cached_file: bool = False


class JobGraph(msgspec.Struct, frozen=True):
    """A job: vertices in topological order, the edges between them, the job's settings, and files for its functions."""

    job_id: JobId
    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    settings: dict[str, str]
    plan_json: str = ""
    artifacts: tuple[JobArtifact, ...] = ()
    client_heartbeat_timeout_ms: int = 0
    """Time without a heartbeat of the client after which the job is cancelled; 0: it continues without a client."""
    slot_resources: dict[str, ResourceProfile] = {}
    """Resources of slots by slot sharing group, for groups that set some; the others have slots of default size."""
    python_executable: str = ""
    """Interpreter of the job's TaskManagers, if it differs from the cluster's, or the name of the job's environment."""

    def profile_of(self, slot_sharing_group: str) -> ResourceProfile:
        """Return the resources of each slot of a group; unspecified: the default."""
        resources = self.slot_resources.get(slot_sharing_group, UNSPECIFIED)
        return resources.with_interpreter(self.python_executable)

    def vertex(self, vertex_id: JobVertexId) -> JobVertex:
        """Return the vertex with this id; KeyError if there is none."""
        for vertex in self.vertices:
            if vertex.vertex_id == vertex_id:
                return vertex
        raise KeyError(vertex_id)

    def edges_into(self, vertex_id: JobVertexId) -> tuple[JobEdge, ...]:
        """Return the edges that `vertex_id` consumes, ordered by input number."""
        return tuple(
            sorted(
                (edge for edge in self.edges if edge.target_vertex_id == vertex_id),
                key=lambda edge: edge.input_number,
            )
        )

    def edges_out_of(self, vertex_id: JobVertexId) -> tuple[JobEdge, ...]:
        """Return the edges that `vertex_id` produces."""
        return tuple(edge for edge in self.edges if edge.source_vertex_id == vertex_id)

    @property
    def has_cached_streams(self) -> bool:
        """Return whether the job reads results of earlier jobs, or leaves some for later ones."""
        return any(vertex.cached_input is not None for vertex in self.vertices) or any(
            edge.result_type.traits.is_persistent for edge in self.edges
        )

    def __str__(self) -> str:
        lines = [
            f"JobGraph '{self.name}' ({self.job_id}): {len(self.vertices)} vertices, {len(self.edges)} edges"
        ]
        for vertex in self.vertices:
            lines.append(
                f"  {vertex.name} x {vertex.parallelism} of {vertex.max_parallelism}, "
                f"{vertex.kind.value}, slot sharing group '{vertex.slot_sharing_group}'"
            )
            if vertex.cached_input is not None:
                lines.append(f"      input 0 <- cached data set {vertex.cached_input}")
            for edge in self.edges_into(vertex.vertex_id):
                producer = self.vertex(edge.source_vertex_id)
                side = f" side output '{edge.side_output_tag}'" if edge.side_output_tag else ""
                lines.append(
                    f"      input {edge.input_number} <- {producer.name}{side}, "
                    f"{edge.partitioner.kind.value}, {edge.result_type.value}"
                )
            lines += [
                f"      {operator.operator_id} {operator.name}" for operator in vertex.operators
            ]
        return "\n".join(lines)


Payload = bytes | memoryview


@dataclass(frozen=True)
class VertexPayloads:
    """Pickled specs and types by the position of their operator, and pickled partitioners by that of the outgoing edge.

    Decoded payloads are views that keep the whole buffer alive: drop them once they are loaded.
    """

    specs: tuple[Payload, ...]
    types: tuple[Payload, ...]
    partitioners: tuple[Payload, ...]

    @classmethod
    def of(cls, vertex: JobVertex, edges: tuple[JobEdge, ...]) -> "VertexPayloads":
        """Return the payloads of a vertex that contains them itself; `edges` are its outgoing edges."""
        return cls(
            tuple(operator.payload for operator in vertex.operators),
            tuple(operator.types_payload for operator in vertex.operators),
            tuple(edge.partitioner.payload for edge in edges),
        )

    @property
    def size_bytes(self) -> int:
        """Return the sum of their sizes."""
        return sum(len(part) for part in (*self.specs, *self.types, *self.partitioners))

    def encode(self) -> bytes:
        """Return one blob; equal payloads make equal bytes."""
        return _ENCODER.encode((self.specs, self.types, self.partitioners))

    @classmethod
    def decode(cls, blob: memoryview) -> "VertexPayloads":
        """Read a blob without copying; raises one of DECODE_ERRORS if it is not valid."""
        return cls(*_DECODER.decode(blob))


_ENCODER = msgspec.msgpack.Encoder()
_Views = tuple[memoryview, ...]
_DECODER = msgspec.msgpack.Decoder(tuple[_Views, _Views, _Views])


@dataclass(frozen=True)
class OffloadedGraph:
    """A graph that is small enough for a message, and the blobs that it names."""

    graph: JobGraph
    blobs: dict[BlobKey, bytes]


def offload(graph: JobGraph, inline_bytes_max: int) -> OffloadedGraph:
    """Move payloads of vertices into blobs, the largest first, until at most `inline_bytes_max` bytes are left.

    Artifacts are always moved.

    Pure but slow, because it hashes the moved payloads. A vertex that was offloaded before is not changed.
    """
    payloads = {
        vertex.vertex_id: VertexPayloads.of(vertex, graph.edges_out_of(vertex.vertex_id))
        for vertex in graph.vertices
        if vertex.payloads is None
    }
    rest = sum(each.size_bytes for each in payloads.values())
    artifacts = tuple(without_content(artifact) for artifact in graph.artifacts)
    blobs = {
        moved.key: artifact.content
        for moved, artifact in zip(artifacts, graph.artifacts, strict=True)
        if artifact.key is None and moved.key is not None
    }
    keys: dict[object, BlobKey] = {}
    for vertex_id, each in sorted(payloads.items(), key=lambda item: -item[1].size_bytes):
        if rest <= inline_bytes_max:
            break
        rest -= each.size_bytes
        blob = each.encode()
        key = keys[vertex_id] = BlobKey.of(blob)
        blobs[key] = blob
    if not blobs:
        return OffloadedGraph(graph, {})
    vertices = tuple(
        _without_payloads(vertex, keys[vertex.vertex_id]) if vertex.vertex_id in keys else vertex
        for vertex in graph.vertices
    )
    edges = tuple(
        _without_payload(edge) if edge.source_vertex_id in keys else edge for edge in graph.edges
    )
    moved = msgspec.structs.replace(graph, vertices=vertices, edges=edges, artifacts=artifacts)
    return OffloadedGraph(moved, blobs)


def with_payloads(graph: JobGraph, content_of: Callable[[BlobKey], bytes]) -> JobGraph:
    """Return the graph with its vertices' payloads, as it was before `offload`; artifacts stay in blobs.

    Raises one of DECODE_ERRORS if a blob holds no payloads.
    """
    replace, vertices, edges = msgspec.structs.replace, list(graph.vertices), list(graph.edges)
    for place, vertex in enumerate(vertices):
        if vertex.payloads is None:
            continue
        found = VertexPayloads.decode(memoryview(content_of(vertex.payloads)))
        operators = tuple(
            replace(operator, payload=bytes(spec), types_payload=bytes(types))
            for operator, spec, types in zip(
                vertex.operators, found.specs, found.types, strict=True
            )
        )
        vertices[place] = replace(vertex, operators=operators, payloads=None)
        out = [index for index, one in enumerate(edges) if one.source_vertex_id == vertex.vertex_id]
        for index, payload in zip(out, found.partitioners, strict=True):
            partitioner = replace(edges[index].partitioner, payload=bytes(payload))
            edges[index] = replace(edges[index], partitioner=partitioner)
    return replace(graph, vertices=tuple(vertices), edges=tuple(edges))


def blob_keys(graph: JobGraph) -> tuple[BlobKey, ...]:
    """Return the blobs that a graph names, each once."""
    keys = (*(v.payloads for v in graph.vertices), *(a.key for a in graph.artifacts))
    return tuple(dict.fromkeys(key for key in keys if key is not None))


def blob_text(graph: JobGraph, key: BlobKey) -> str:
    """Describe the content of a blob of a graph for people."""
    names = ", ".join(f"'{v.name}'" for v in graph.vertices if v.payloads == key)
    if names:
        return f"the functions and collections of {names} ({size_text(key.size_bytes)})"
    files = ", ".join(f"'{a.file_name}'" for a in graph.artifacts if a.key == key)
    return f"the file {files} ({size_text(key.size_bytes)})"


def without_content(artifact: JobArtifact) -> JobArtifact:
    """Return the description of a file without its content, which names its blob."""
    if artifact.key is not None:
        return artifact
    return msgspec.structs.replace(artifact, content=b"", key=BlobKey.of(artifact.content))


def _without_payloads(vertex: JobVertex, key: BlobKey) -> JobVertex:
    operators = tuple(
        msgspec.structs.replace(operator, payload=b"", types_payload=b"")
        for operator in vertex.operators
    )
    return msgspec.structs.replace(vertex, operators=operators, payloads=key)


def _without_payload(edge: JobEdge) -> JobEdge:
    partitioner = msgspec.structs.replace(edge.partitioner, payload=b"")
    return msgspec.structs.replace(edge, partitioner=partitioner)
