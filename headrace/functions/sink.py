"""Sink: a description that is shipped to the tasks, from which each subtask makes a writer.

Rows become visible as they are written, or are staged and committed once their checkpoint is complete. Also holds
DiscardingSink, which shows the speed of a program without its sink.

Source: Flink Sink V2, Sink and SinkWriter.
"""

import enum
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from headrace.core.config import Settings
from headrace.core.ids import JobId, OperatorId
from headrace.core.randomness import system_random
from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import TypeInformation
from headrace.functions.runtime_context import SubtaskContext

FINAL_CHECKPOINT: Final = 2**63 - 1
"""Id that stands for the checkpoint after the end of input, whose id is not known yet."""
COMMITTER_ENTRY_POINTS: Final = "headrace.committers"
"""Group of entry points for the CommitterFactory of each name that a sink gives."""
OWNER_BYTES: Final = 8
_JOB_BYTES: Final = 16


class DeliveryGuarantee(enum.Enum):
    """Delivery guarantees of a sink after failures."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class SinkWriter(ABC):
    """Writes the records of one subtask; used by one thread, the task's mailbox."""

    @abstractmethod
    def write_batch(self, batch: RecordBatch) -> None:
        """Take a batch; it may be kept until the next flush."""

    @abstractmethod
    def flush(self, end_of_input: bool) -> None:
        """Write all rows taken so far to their target; with `end_of_input` no more will follow."""

    def prepare_commit(self, checkpoint_id: int) -> Sequence[bytes]:
        """Return committables completed since the last call, to be committed once the checkpoint is published.

        Called after `flush`, before the barrier is forwarded; at the end of input with FINAL_CHECKPOINT. The runtime
        keeps the committables, and includes them in later checkpoints until they are committed or discarded.
        """
        return ()

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        """Return the state of unfinished output that a successor needs, as items."""
        return ()

    def restore_state(self, items: Sequence[bytes]) -> None:
        """Continue from the items of a checkpoint; called before the first batch."""
        if items:
            raise NotImplementedError(f"{type(self).__name__} does not restore its state")

    def sent_byte_count(self) -> int | None:
        """Return the number of bytes written to the target; None if it is not known.

        Called by any thread, only for metrics.
        """
        return None

    def handle_event(self, payload: bytes) -> None:
        """Handle an event from the sink's coordinator."""
        raise AssertionError(f"{type(self).__name__} has no coordinator")

    def close(self) -> None:  # noqa: B027
        """Release resources; also after a failure. A second call has no effect."""


class Sink(ABC):
    """Base of all sinks: picklable, the same for all subtasks."""

    @abstractmethod
    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        """Make the writer of one subtask, on the worker."""

    def check_input(self, value_type: TypeInformation) -> None:  # noqa: B027
        """Raise ProgramError if records of this type cannot be written; called while the program is built."""

    def check_target(self) -> None:  # noqa: B027
        """Raise ProgramError if writing would certainly fail; called on the client before a job is submitted."""

    def coordinator(self) -> tuple[str, bytes] | None:
        """Return name and payload of the coordinator that commits in the JobMaster, or None."""
        return None

    def committer(self) -> tuple[str, bytes] | None:
        """Return name and payload of the Committer that makes prepared output visible, or None."""
        return None


class StreamTransformer(ABC):
    """Base class of transformations that a sink applies to the stream before its records are written."""

    @abstractmethod
    def apply(self, ds: Any) -> Any:
        """Return the DataStream that is written instead of `ds`."""


class SupportsPreprocessing(ABC):
    """A sink that may have a StreamTransformer, which `sink_to` applies."""

    @abstractmethod
    def get_transformer(self) -> StreamTransformer | None:
        """Return the transformer, or None if the stream is written unchanged."""


class Committer(Protocol):
    """Makes prepared output visible, in the JobMaster's process on its own thread, one call at a time, in order of ids.

    The target itself shows whether a key was committed, because the key is written together with the data. The
    committer never sees output of attempts that died before their checkpoint: its writers must delete it.
    """

    def commit(self, key: str, checkpoint_id: int, committables: Sequence[bytes]) -> None:
        """Make all committables visible under an idempotence key, at once if the target can do that.

        Called again after a failure with the same key and the same committables: it must then do only the missing part.
        `key`: see `commit_key`. An error fails the job; no output is dropped.
        """
        ...

    def close(self) -> None:
        """Release resources. Idempotent."""
        ...


@runtime_checkable
class KnowsCommits(Protocol):
    """A Committer whose target records its last commit: a job that would write it again is refused."""

    def last_committed(self, scope: str) -> int | None:
        """Return the highest checkpoint id committed in a scope (see `scope_of`); None if there was none.

        Called before any commit, on the same thread. An error that is not `recoverable` fails the job at once.
        """
        ...


@runtime_checkable
class DeletesLeftovers(Protocol):
    """A Committer that finds all staged output of a sink's subtasks: needed if a job commits only once."""

    def delete_leftovers(self, scope: str, owner: str) -> None:
        """Delete all staged output of a sink in a job that will commit nothing more. Idempotent.

        No task of the job runs. `scope`: see `scope_of`; `owner`: see `staging_owner`.
        """
        ...


@dataclass(frozen=True)
class CommitterContext:
    """Facts about the job for a committer: the sink's name for messages, and the job's settings."""

    operator_name: str
    settings: Settings


CommitterFactory = Callable[[CommitterContext, bytes], Committer]
"""Function that makes a committer from the payload that `Sink.committer` returned."""


def commit_key(lineage: str, sink: str, checkpoint_id: int) -> str:
    """Return the idempotence key of one commit: `lineage/sink/id`.

    `lineage` is drawn anew with every start without state, and `sink` is the operator's stable id, so that a key always
    means the same output.
    """
    return f"{lineage}/{sink}/{checkpoint_id}"


def scope_of(key: str) -> str:
    """Return the `lineage/sink` part of a key. Within a scope ids are committed in order and never reused.

    So the highest committed id of a target implies all lower ones.
    """
    scope, _, _ = key.rpartition("/")
    assert scope, f"not a commit key: {key}"
    return scope


class DiscardingSink(Sink):
    """Discards every record; the job still counts them. Source: Flink DiscardingSink.

    Example:
        >>> from headrace.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> sink = env.from_collection([1, 2]).sink_to(DiscardingSink())
    """

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        return _Discard()


class _Discard(SinkWriter):
    def write_batch(self, batch: RecordBatch) -> None:
        pass

    def flush(self, end_of_input: bool) -> None:
        pass


def owner_of_sink(context: SubtaskContext) -> str:
    """Return the `staging_owner` of a subtask's sink."""
    attempt = context.attempt_id
    # Without a job (a writer that is driven by hand) writers cannot be distinguished: the owner is random then.
    job_id = JobId(system_random().randbytes(_JOB_BYTES)) if attempt is None else attempt.job_id
    return staging_owner(job_id, context.operator_id)


def staging_owner(job_id: JobId, operator_id: OperatorId) -> str:
    """Return the name of a sink within one job, 16 hexadecimal digits, under which its subtasks stage rows.

    Staged rows outlive their writer: by this name the committer finds them, and later attempts delete leftovers.
    """
    name = job_id.value + operator_id.value
    return hashlib.blake2b(name, digest_size=OWNER_BYTES).hexdigest()
