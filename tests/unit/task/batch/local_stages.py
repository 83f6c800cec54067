"""Runs a job graph in BATCH mode within a test: one stage after another, with pyarrow as the shuffle."""

import msgspec
import numpy as np
import pyarrow as pa

from headrace.core.ids import OperatorId
from headrace.graph.job_graph import JobEdge, JobGraph, JobVertex, PartitionerKind, VertexPayloads
from headrace.task.batch.stage_rows import (
    EDGE,
    HASH,
    PLACE,
    RECEIVER,
    REPORT,
    REPORT_COLUMN,
    StageReport,
    edge_numbers,
    row_column,
    stage_schema,
)
from headrace.task.batch.stage_task import StageEdge, StageSpec, StageTask, edge_forms
from headrace.task.user_payloads import load_types


class LocalStages:
    """One run. `batch_rows`: rows of each batch that a subtask is given."""

    def __init__(self, graph: JobGraph, batch_rows: int = 7) -> None:
        settings = {**graph.settings, "execution.runtime-mode": "BATCH"}
        self._graph = msgspec.structs.replace(graph, settings=settings)
        self._batch_rows = batch_rows
        self._tables: dict[JobEdge, pa.Table] = {}
        self.reports: list[StageReport] = []

    def run(self) -> "LocalStages":
        for vertex in self._graph.vertices:
            self._run_vertex(vertex)
        return self

    def committables_of(self, operator_id: OperatorId) -> list[bytes]:
        return [
            content
            for report in self.reports
            if report.operator_id == operator_id
            for content in report.committables
        ]

    def _run_vertex(self, vertex: JobVertex) -> None:
        out, into = (
            self._graph.edges_out_of(vertex.vertex_id),
            self._graph.edges_into(vertex.vertex_id),
        )
        consumers = [self._graph.vertex(edge.target_vertex_id) for edge in out]
        is_keyed = any(edge.partitioner.kind is PartitionerKind.HASH for edge in into)
        spec = StageSpec(
            job_id=self._graph.job_id,
            job_name=self._graph.name,
            vertex=vertex,
            settings=self._graph.settings,
            edges=tuple(
                StageEdge(edge, consumer.parallelism, consumer.max_parallelism)
                for edge, consumer in zip(out, consumers, strict=True)
            ),
            is_keyed=is_keyed,
            splits=(),
            collects=frozenset(),
            reports=True,
            vertex_number=self._graph.vertices.index(vertex),
        )
        types = load_types(vertex, VertexPayloads.of(vertex, out))
        schema = stage_schema(edge_forms(vertex, types, out))
        batches: list[pa.RecordBatch] = []
        rows = self._input(into, is_keyed)
        for subtask_index in range(vertex.parallelism):
            own = [] if rows is None else self._batches_of(rows, subtask_index)
            task = StageTask(spec, subtask_index, 0)
            try:
                batches += task.run(own)
            finally:
                task.close()
        made = pa.Table.from_batches(batches, schema)
        for number, edge in zip(edge_numbers(out), out, strict=True):
            self._tables[edge] = _where(made, EDGE, number).rename_columns(
                [name if name != row_column(number) else "row" for name in schema.names]
            )
        for content in _where(made, EDGE, REPORT)[REPORT_COLUMN].to_pylist():
            self.reports.append(msgspec.msgpack.decode(content, type=StageReport))

    def _input(self, into: tuple[JobEdge, ...], is_keyed: bool) -> pa.Table | None:
        if not into:
            return None
        parts: list[pa.Table] = []
        for edge in into:
            rows = self._tables[edge]
            columns = {name: rows[name] for name in (RECEIVER, HASH, PLACE)}
            columns[EDGE] = pa.array([edge.input_number] * rows.num_rows, pa.int32())
            columns[row_column(edge.input_number)] = rows["row"]
            parts.append(pa.table(columns))
        rows = pa.concat_tables(parts, promote_options="default")
        order = (HASH, EDGE, PLACE) if is_keyed else (EDGE, PLACE)
        has_broadcast = any(
            edge.input_number == 1 and edge.partitioner.kind is PartitionerKind.BROADCAST
            for edge in into
        )
        columns = {PLACE: rows[PLACE].fill_null(-(2**63)).to_numpy()}
        # As integers of 64 bits, among which rows without a key have a place before all others.
        columns[HASH] = rows[HASH].cast(pa.int64()).fill_null(-(2**63)).to_numpy()
        columns[EDGE] = rows[EDGE].to_numpy() * (-1 if has_broadcast and not is_keyed else 1)
        return rows.take(np.lexsort([columns[name] for name in reversed(order)]))

    def _batches_of(self, rows: pa.Table, subtask_index: int) -> list[pa.RecordBatch]:
        own = _where(rows, RECEIVER, subtask_index).combine_chunks()
        return [
            batch
            for whole in own.to_batches()
            for start in range(0, whole.num_rows, self._batch_rows)
            for batch in (whole.slice(start, self._batch_rows),)
        ]


def _where(rows: pa.Table, name: str, number: int) -> pa.Table:
    return rows.filter(pa.array(rows[name].to_numpy() == number))
