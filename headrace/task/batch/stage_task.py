"""StageTask: runs the operators of one subtask of a stage over ordered rows.

Rows of a keyed input are sorted by key hash, then by time. The operators get all complete runs of equal hashes that are
in one batch at once, so that only the state of one batch's keys, and of one more key, is held at a time.
Source: Flink BatchExecutionKeyedStateBackend, MultiInputSortingDataInput.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import UserCodeError
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    IntermediateDataSetId,
    JobId,
    OperatorId,
    ResultPartitionId,
)
from headrace.core.lifecycle import ExecutionState
from headrace.core.operator_spec import OperatorTypes
from headrace.core.process.state_memory import kept_runs_bytes, row_buffer_bytes
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import KEY_HASH_COLUMN, RecordBatch
from headrace.core.types.arrow_types import data_schema
from headrace.functions.source import InputStatus
from headrace.graph.job_graph import JobEdge, JobVertex, PartitionerKind, VertexPayloads
from headrace.metrics.groups import MetricGroup
from headrace.network.batches.channel_selectors import ChannelSelector, create_selector
from headrace.network.gates.partition_requests import AnswerVerdict
from headrace.operators.runtime.operator import OneInputOperator, SourceOperator, TwoInputOperator
from headrace.task.batch.dataframe_rows import DataFrameRows
from headrace.task.batch.edge_rows import EdgeRows, PackedRows, int32_column, unpacked
from headrace.task.batch.sorted_rows import OrderedRows, SortedRows
from headrace.task.batch.stage_rows import (
    EDGE,
    RECEIVER,
    SUBTASK_ROW,
    EdgeForm,
    StageReport,
    StageRows,
    edge_numbers,
    row_column,
)
from headrace.task.chain.operator_chain import OperatorChain
from headrace.task.environment import TaskEnvironment
from headrace.task.mailbox import Mailbox, MailboxTimers
from headrace.task.metrics import TaskCounters
from headrace.task.user_payloads import find_modules, load_specs, load_types

COMMIT_ID: Final = 1
"""Checkpoint id of the single commit of a BATCH job."""
_WAIT_MAX_MS: Final = 100.0
_KEYED_ROWS_MAX: Final = 8_192
"""Rows in one batch of a keyed input; it bounds the number of keys whose state is held at a time."""
_COLUMNS_MAX: Final = 65_536
"""Rows in such a batch if the operator keeps them in columns."""
_LOCAL_DIRECTORIES_VARIABLE: Final = "SPARK_LOCAL_DIRS"


@dataclass(frozen=True)
class StageEdge:
    """An outgoing edge, with the selector of its consumers."""

    edge: JobEdge
    consumer_parallelism: int
    consumer_max_parallelism: int


@dataclass(frozen=True)
class StageSpec:
    """Description of a vertex for its subtasks. `splits`: events for the source, by subtask.

    `collects`: operators whose events go to the driver; `reports`: whether the driver reads this stage's reports.
    `as_columns`: outgoing edges whose rows Spark itself reads, as columns. `reads_dataframe`: whether the input is a
    DataFrame's rows instead of edges. `vertex_number`: its number in the job.
    """

    job_id: JobId
    job_name: str
    vertex: JobVertex
    settings: dict[str, str]
    edges: tuple[StageEdge, ...]
    is_keyed: bool
    splits: tuple[tuple[bytes, ...], ...]
    collects: frozenset[OperatorId]
    reports: bool
    as_columns: frozenset[IntermediateDataSetId] = frozenset()
    reads_dataframe: bool = False
    vertex_number: int = 0


class _Listener:
    """TaskListener that keeps the events of collect sinks; a source has all its splits from the start."""

    def __init__(self, collects: frozenset[OperatorId]) -> None:
        self._collects: Final = collects
        self._collected: dict[OperatorId, list[bytes]] = {}

    def operator_event(
        self, attempt_id: ExecutionAttemptId, operator_id: OperatorId, payload: bytes
    ) -> None:
        if operator_id in self._collects and payload:
            self._collected.setdefault(operator_id, []).append(payload)

    def take(self) -> dict[OperatorId, list[bytes]]:
        collected, self._collected = self._collected, {}
        return collected

    def state_changed(
        self, attempt_id: ExecutionAttemptId, state: ExecutionState, error: BaseException | None
    ) -> None:
        """Do nothing: Spark tracks the state."""

    def checkpoint_acknowledged(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> None:
        raise AssertionError("there are no checkpoints in BATCH mode")

    def checkpoint_declined(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        text: str,
    ) -> None:
        raise AssertionError("there are no checkpoints in BATCH mode")

    def data_ended(self, attempt_id: ExecutionAttemptId) -> None:
        """Do nothing: Spark tracks the end."""

    def check_producer(
        self,
        attempt_id: ExecutionAttemptId,
        partition_id: ResultPartitionId,
        answer: AnswerVerdict,
    ) -> None:
        raise AssertionError("a stage does not read result partitions")


def edge_forms(
    vertex: JobVertex,
    types: Sequence[OperatorTypes],
    edges: Sequence[JobEdge],
    as_columns: frozenset[IntermediateDataSetId] = frozenset(),
) -> dict[int, EdgeForm]:
    """Return the row formats of a vertex's outgoing edges, by number; `types` belong to its operators.

    `as_columns`: edges whose rows Spark itself reads; other rows are packed.
    """
    return {
        number: _columns_of(edge, vertex, types) if edge.data_set_id in as_columns else PackedRows()
        for number, edge in zip(edge_numbers(edges), edges, strict=True)
    }


def _columns_of(edge: JobEdge, vertex: JobVertex, types: Sequence[OperatorTypes]) -> EdgeRows:
    ids = [operator.operator_id for operator in vertex.operators]
    source = types[ids.index(edge.source_operator_id)]
    tag = edge.side_output_tag
    return EdgeRows(source.output if tag is None else source.side_outputs[tag])


class StageTask:
    """Runs the chain of one subtask. `attempt_number` differs from that of every other attempt.

    `external_resources`: addresses by name of the resources that Spark reserved for it.
    """

    def __init__(
        self,
        spec: StageSpec,
        subtask_index: int,
        attempt_number: int,
        external_resources: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._spec: Final = spec
        self._subtask_index: Final = subtask_index
        vertex = spec.vertex
        settings = Settings(spec.settings)
        attempt_id = ExecutionAttemptId(
            spec.job_id, ExecutionVertexId(vertex.vertex_id, subtask_index), attempt_number
        )
        self._mailbox: Final = Mailbox()
        clock = SystemClock()
        self._timers: Final = MailboxTimers(clock)
        self._listener: Final = _Listener(spec.collects)
        # The same seed for every attempt of a subtask, so that rows go to the same consumers.
        directory = _local_directory(subtask_index)
        own_random = SeededRandom(f"{spec.job_id}-{vertex.vertex_id}-{subtask_index}")
        self._environment = TaskEnvironment(
            attempt_id=attempt_id,
            job_name=spec.job_name,
            vertex=vertex,
            settings=settings,
            inputs=(),
            outputs=(),
            clock=clock,
            random=own_random,
            metrics=MetricGroup(clock),
            listener=self._listener,
            scratch=None if directory is None else Path(directory),
            external_resources=external_resources or {},
        )
        self._chain: OperatorChain | None = None
        self._records_in = 0
        self._sorted: Final = SortedRows(
            directory, row_buffer_bytes(settings), kept_runs_bytes(settings)
        )
        self._rows = StageRows({}, subtask_index)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Consume all input and yield all output."""
        spec, vertex = self._spec, self._spec.vertex
        find_modules(self._environment.settings)
        payloads = VertexPayloads.of(vertex, tuple(one.edge for one in spec.edges))
        types = load_types(vertex, payloads)
        specs = load_specs(vertex, payloads)
        if spec.reads_dataframe:
            schema = data_schema(types[0].output.value_type)
            door = DataFrameRows((batch for batch in batches if batch.num_rows), schema)
            self._environment = replace(self._environment, ingest=door)
        edges = [one.edge for one in spec.edges]
        forms = edge_forms(vertex, types, edges, spec.as_columns)
        rows = self._rows = StageRows(forms, self._subtask_index, spec.vertex_number)
        chain = self._chain = OperatorChain(
            self._environment,
            types,
            specs,
            (),
            self._timers,
            TaskCounters(),
            self._mailbox,
            lambda: 0.0,
        )
        for number, one in zip(edge_numbers(edges), spec.edges, strict=True):
            write = rows.writer(number, self._selector(one))
            chain.send_to(one.edge.source_operator_id, write, one.edge.side_output_tag)
        chain.open()
        if isinstance(chain.head, SourceOperator):
            for _ in self._poll(chain, chain.head):
                yield from self._taken(rows)
            chain.emit_end_of_time()
        else:
            for _ in self._feed(chain, types[0], batches):
                yield from self._taken(rows)
            chain.head.process_watermark(MAX_WATERMARK, chain.head_output)
            for input_number in range(len(types[0].inputs)):
                chain.end_head_input(input_number)
        yield from self._taken(rows)
        while not chain.finish():
            self._wait()
        yield from self._taken(rows)
        for operator_id, effects in chain.prepared_effects(COMMIT_ID).items():
            contents = tuple(effect.content for effect in effects)
            report = StageReport(self._subtask_index, operator_id, committables=contents)
            rows.report(report)
        if spec.reports:
            counts = StageReport(
                self._subtask_index, records_in=self._records_in, records_out=rows.record_count
            )
            rows.report(counts)
        yield from rows.take(is_end=True)

    def counts(self) -> tuple[int, int, dict[str, float], tuple[str, ...]]:
        """Return the records in and out, the operators' metrics, and the names of users' counters among them.

        Rows that a source reads do not count as records in.
        """
        chain = self._chain
        if chain is None:
            return 0, 0, {}, ()
        metrics = {
            name: float(value)
            for name, value in chain.metrics_snapshot().items()
            if math.isfinite(value)
        }
        counters = tuple(name for name in chain.user_counters() if name in metrics)
        records_in = 0 if isinstance(chain.head, SourceOperator) else self._records_in
        return records_in, self._rows.record_count, metrics, counters

    def located(self, error: BaseException) -> BaseException:
        """Return `error`; a UserCodeError without a location gets that of its operator's function."""
        if isinstance(error, UserCodeError) and self._chain is not None:
            return self._chain.blame(error)
        return error

    def close(self) -> None:
        """Close the operators. Idempotent."""
        self._timers.quiesce()
        self._mailbox.close()
        self._sorted.close()
        chain, self._chain = self._chain, None
        if chain is not None:
            chain.close()

    def _taken(self, rows: StageRows) -> Iterator[pa.RecordBatch]:
        for operator_id, events in self._listener.take().items():
            rows.report(StageReport(self._subtask_index, operator_id, collected=tuple(events)))
        return rows.take()

    def _selector(self, edge: StageEdge) -> ChannelSelector | int:
        kind = edge.edge.partitioner.kind
        # If all rows go to one subtask, only a user's partitioner is called, for the errors it raises.
        is_only_one = edge.consumer_parallelism == 1 and kind is not PartitionerKind.CUSTOM
        if kind is PartitionerKind.BROADCAST or is_only_one:
            return edge.consumer_parallelism
        if kind is PartitionerKind.FORWARD:
            return _OwnSubtask(self._subtask_index)
        return create_selector(
            edge.edge.partitioner,
            edge.consumer_parallelism,
            edge.consumer_max_parallelism,
            self._environment.random,
            self._environment.settings,
        )

    def _poll(self, chain: OperatorChain, source: SourceOperator) -> Iterator[None]:
        if self._spec.splits:
            for event in self._spec.splits[self._subtask_index]:
                chain.deliver_event(chain.head_id, event)
        status = InputStatus.MORE_AVAILABLE
        while status is not InputStatus.END_OF_INPUT:
            before = chain.head_output.records_out
            status = source.poll(chain.head_output)
            self._records_in += chain.head_output.records_out - before
            while chain.is_amid_batch:
                chain.go_on_with_batch()
                self._let_chain_work(chain)
            self._let_chain_work(chain)
            yield
            if status is InputStatus.NOTHING_AVAILABLE:
                self._wait()

    def _feed(
        self, chain: OperatorChain, types: OperatorTypes, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[None]:
        """Pass rows without a key to the chain as they arrive, then those with a key in order."""
        for arrow in batches:
            self._check_subtask(arrow)
            for index, input_number in enumerate(arrow.column(EDGE).to_pylist()):
                if input_number == SUBTASK_ROW:
                    continue
                rows = unpacked(arrow.column(row_column(input_number)), index)
                self._records_in += rows.num_rows
                if KEY_HASH_COLUMN in rows.schema.names:
                    self._sorted.add(input_number, rows)
                else:
                    self._process(chain, types, input_number, rows)
            yield
        open_hash: int | None = None
        head, output = chain.head, chain.head_output
        rows_max = _KEYED_ROWS_MAX if head.is_per_record else _COLUMNS_MAX
        for ordered in self._sorted.ordered():
            for start in range(0, ordered.num_rows, rows_max):
                end = min(start + rows_max, ordered.num_rows)
                hashes = ordered.hashes[start:end]
                last = int(hashes[-1])
                begin_of_last = start + int(np.searchsorted(hashes, last))
                if open_hash is not None and int(hashes[0]) != open_hash:
                    head.end_keys(output)
                if begin_of_last > start:
                    self._process_keyed(chain, types, ordered, start, begin_of_last)
                    head.end_keys(output)
                open_hash = last
                self._process_keyed(chain, types, ordered, begin_of_last, end)
                yield
        head.end_keys(output)
        yield

    def _process_keyed(
        self, chain: OperatorChain, types: OperatorTypes, ordered: OrderedRows, start: int, end: int
    ) -> None:
        part = ordered.part(start, end)
        if len(part.rows_of) == 1:
            ((input_number, rows),) = part.rows_of.items()
            self._process(chain, types, input_number, rows)
        elif part.rows_of:
            head = chain.head
            assert isinstance(head, TwoInputOperator)
            one, two = (RecordBatch.from_arrow(types.inputs[n], part.rows_of[n]) for n in (0, 1))
            head.process_interleaved(part.inputs, one, two, chain.head_output)
            self._let_chain_work(chain)

    def _process(
        self, chain: OperatorChain, types: OperatorTypes, input_number: int, rows: pa.RecordBatch
    ) -> None:
        head, output = chain.head, chain.head_output
        batch = RecordBatch.from_arrow(types.inputs[input_number], rows)
        if isinstance(head, OneInputOperator):
            head.process_batch(batch, output)
        else:
            assert isinstance(head, TwoInputOperator)
            take = head.process_batch1 if input_number == 0 else head.process_batch2
            take(batch, output)
        self._let_chain_work(chain)

    def _let_chain_work(self, chain: OperatorChain) -> None:
        """Run mail and timers until the chain can take input again."""
        self._run_mail()
        while not chain.can_take_input:
            self._wait()

    def _run_mail(self) -> None:
        for mail in self._mailbox.take_all():
            mail()
        self._timers.fire_due()

    def _wait(self) -> None:
        delay_ms = self._timers.delay_to_next_ms()
        self._mailbox.wait(_WAIT_MAX_MS if delay_ms is None else min(delay_ms, _WAIT_MAX_MS))
        self._run_mail()

    def _check_subtask(self, arrow: pa.RecordBatch) -> None:
        """Refuse rows of another subtask: if Spark changed the plan, keys would be mixed up silently."""
        subtasks = int32_column(arrow.column(RECEIVER))
        assert (subtasks == self._subtask_index).all(), (
            f"partition {self._subtask_index} got rows of subtasks {sorted(set(subtasks.tolist()))}"
        )


def _local_directory(subtask_index: int) -> str | None:
    """Return Spark's local directory for this subtask, chosen in turn; None if there is none."""
    folders = [one for one in os.environ.get(_LOCAL_DIRECTORIES_VARIABLE, "").split(",") if one]
    return folders[subtask_index % len(folders)] if folders else None


class _OwnSubtask:
    """ChannelSelector of a forward edge: sends all rows to the consumer's subtask with the same index."""

    is_broadcast = False
    deals_rows = False

    def __init__(self, subtask_index: int) -> None:
        self._subtask_index: Final = subtask_index

    def select(self, batch: RecordBatch) -> list[tuple[int, RecordBatch]]:
        return [(self._subtask_index, batch)]

    def channels_of(self, batch: RecordBatch) -> npt.NDArray[np.int32]:
        return np.full(batch.num_rows, self._subtask_index, np.int32)
