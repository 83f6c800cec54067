"""Output rows of a stage: the rows of each outgoing edge and reports to the driver, in one schema.

    edge      number of the edge (`edge_numbers`), or REPORT
    receiver  the consumer's subtask that the row is for
    hash      null if the edge has no keys, else 0: packed rows contain the keys' hashes and the times
    place     unique number of the row, ascending for each producer
    report    a StageReport, on rows of REPORT alone
    row<n>    the row itself, or many packed ones, on rows of edge n alone (`edge_rows`)

A consumer reads the edges of its inputs as columns `row0` and `row1`, with the input's number in `edge`. A source reads
its subtask's number as START_ROW.
Spark's partition number is not the subtask's: when stages are united, the second's partitions follow the first's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.ids import OperatorId
from headrace.core.record_batch import RecordBatch, concat_batches
from headrace.graph.job_graph import JobEdge
from headrace.network.batches.channel_selectors import (
    ChannelSelector,
    in_order,
    order_by_channel,
)
from headrace.task.batch.edge_rows import EdgeRows, PackedRows, packed, packets

REPORT: Final = -1
SUBTASK_ROW: Final = -2
"""Edge number of the extra row that every subtask gets, so that a subtask without input knows its index."""
EDGE: Final = "edge"
RECEIVER: Final = "receiver"
HASH: Final = "hash"
PLACE: Final = "place"
START_ROW: Final = "id"
"""Name of the column of Spark's ranges."""
REPORT_COLUMN: Final = "report"
_PLACE_BITS: Final = 36
_SUBTASK_BITS: Final = 15
"""Bits of a row's number within its producer: about 10^12 rows each."""
_ROWS_MAX: Final = 8_192
"""Rows of one batch for Spark."""
_PACKED_ROWS_MAX: Final = 65_536
_PACKED_BYTES_MAX: Final = 4 << 20
"""Approximate bytes that are packed at once, and that Spark gets in one batch."""
_LARGE_BATCH_BYTES: Final = 1 << 20
"""Average bytes from which batches go to Spark unchanged, because joining them would copy them."""
_NO_HASH: Final = 0
EdgeForm = EdgeRows | PackedRows


class StageReport(msgspec.Struct, frozen=True, array_like=True):
    """Report of a subtask to the driver, sent with its success: rows of a collect sink, or prepared effects.

    `collected`: events of a collect sink, in order. `committables`: prepared effects of a sink. `records_in` and
    `records_out` count rows of the subtask's inputs and edges, in its last report.
    """

    subtask_index: int
    operator_id: OperatorId | None = None
    collected: tuple[bytes, ...] = ()
    committables: tuple[bytes, ...] = ()
    records_in: int = 0
    records_out: int = 0


def row_column(number: int) -> str:
    """Return the name of the column for the rows of edge or input `number`."""
    return f"row{number}"


def edge_numbers(edges: Sequence[JobEdge]) -> tuple[int, ...]:
    """Return the numbers of a vertex's outgoing edges; a single edge has the number of the input that reads it."""
    return (edges[0].input_number,) if len(edges) == 1 else tuple(range(len(edges)))


def stage_schema(edges: Mapping[int, EdgeForm]) -> pa.Schema:
    """Return the schema of a stage with these outgoing edges, by number."""
    return pa.schema(
        [
            pa.field(EDGE, pa.int32()),
            pa.field(RECEIVER, pa.int32()),
            pa.field(HASH, pa.int32()),
            pa.field(PLACE, pa.int64()),
            pa.field(REPORT_COLUMN, pa.binary()),
            *(pa.field(row_column(number), edge.struct_type) for number, edge in edges.items()),
        ]
    )


class StageRows:
    """Collects the output rows of one subtask until Spark takes them."""

    def __init__(
        self, edges: Mapping[int, EdgeForm], subtask_index: int, vertex_number: int = 0
    ) -> None:
        """Set `vertex_number`, the vertex's number in the job, which makes row numbers unique among producers."""
        self._edges: Final = edges
        self._schema: Final = stage_schema(edges)
        self._subtask_index: Final = subtask_index
        self._place = (vertex_number << _SUBTASK_BITS | subtask_index) << _PLACE_BITS
        self._batches: list[pa.RecordBatch] = []
        self._gathered_count = 0
        self._gathered_bytes = 0
        self._packers: list[_Packer] = []
        self.record_count = 0

    def writer(self, edge: int, select: "ChannelSelector | int") -> Callable[[RecordBatch], None]:
        """Return a function that takes the rows of an edge.

        `select` chooses the consumer's subtask for each row; a number sends every row to each of that many subtasks.
        """
        rows = self._edges[edge]
        if isinstance(rows, PackedRows):
            packer = _Packer(select, partial(self._add_packed, edge))
            self._packers.append(packer)
            return packer.write

        def write(batch: RecordBatch) -> None:
            structs = rows.encode(batch)
            if isinstance(select, int):
                for subtask in range(select):
                    self._add(edge, batch, structs, np.full(len(structs), subtask, np.int32))
            else:
                self._add(edge, batch, structs, select.channels_of(batch))

        return write

    def report(self, report: StageReport) -> None:
        """Add a report to the driver."""
        columns: dict[str, pa.Array] = {
            EDGE: pa.array([REPORT], pa.int32()),
            RECEIVER: pa.array([self._subtask_index], pa.int32()),
            PLACE: pa.array([self._place], pa.int64()),
            REPORT_COLUMN: pa.array([msgspec.msgpack.encode(report)], pa.binary()),
        }
        self._place += 1
        self._append(1, columns)

    def take(self, *, is_end: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield full batches of the collected rows; at the end, all that are left."""
        if is_end:
            for packer in self._packers:
                packer.flush()
        is_enough = self._gathered_count >= _ROWS_MAX or self._gathered_bytes >= _PACKED_BYTES_MAX
        if not self._batches or not (is_end or is_enough):
            return
        batches, self._batches = self._batches, []
        is_large = self._gathered_bytes >= len(batches) * _LARGE_BATCH_BYTES
        self._gathered_count = self._gathered_bytes = 0
        if is_large:
            yield from batches
            return
        gathered = pa.concat_batches(batches)
        for start in range(0, gathered.num_rows, _ROWS_MAX):
            yield gathered.slice(start, _ROWS_MAX)

    def _add(
        self,
        edge: int,
        batch: RecordBatch,
        structs: pa.StructArray,
        subtasks: "np.ndarray[tuple[int], np.dtype[np.int32]]",
    ) -> None:
        count = batch.num_rows
        columns: dict[str, pa.Array] = {
            EDGE: pa.array(np.full(count, edge, np.int32)),
            RECEIVER: pa.array(subtasks),
            PLACE: pa.array(np.arange(self._place, self._place + count, dtype=np.int64)),
            row_column(edge): structs,
        }
        self._place += count
        self.record_count += count
        self._append(count, columns)

    def _add_packed(
        self, edge: int, rows: pa.RecordBatch, subtasks: Iterable[int], *, is_keyed: bool
    ) -> None:
        content = packed(rows)
        receivers = list(subtasks)
        count = len(receivers)
        columns: dict[str, pa.Array] = {
            EDGE: pa.array([edge] * count, pa.int32()),
            RECEIVER: pa.array(receivers, pa.int32()),
            PLACE: pa.array(range(self._place, self._place + count), pa.int64()),
            row_column(edge): packets(content, count),
        }
        if is_keyed:
            columns[HASH] = pa.array([_NO_HASH] * count, pa.int32())
        self._place += count
        self.record_count += count * rows.num_rows
        self._gathered_bytes += count * content.size
        self._append(count, columns)

    def _append(self, count: int, columns: dict[str, pa.Array]) -> None:
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(count, field.type)
            for field in self._schema
        ]
        self._gathered_count += count
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))


class _Packer:
    """Collects the rows of an edge, splits them by the consumers' subtasks, and passes many at a time to `add`."""

    def __init__(self, select: "ChannelSelector | int", add: Callable[..., None]) -> None:
        self._select: Final = select
        self._add: Final = add
        self._held: list[RecordBatch] = []
        self._subtasks: list[npt.NDArray[np.int32]] = []
        self._row_count = self._byte_count = 0

    def write(self, batch: RecordBatch) -> None:
        """Add rows. RecordTypeError if a record does not match its type; errors of the user's partitioner."""
        columns = batch.columns()
        if not isinstance(self._select, int):
            self._subtasks.append(self._select.channels_of(batch))
        self._held.append(batch)
        self._row_count += batch.num_rows
        self._byte_count += columns.nbytes
        if self._row_count >= _PACKED_ROWS_MAX or self._byte_count >= _PACKED_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Pass on all rows that are held."""
        if not self._held:
            return
        rows = concat_batches(self._held)
        arrow = rows.to_arrow()
        held, self._subtasks = self._subtasks, []
        self._held.clear()
        self._row_count = self._byte_count = 0
        if isinstance(self._select, int):
            self._hand_on(arrow, range(self._select), is_keyed=rows.is_keyed)
            return
        subtasks = np.concatenate(held)
        order, counts = order_by_channel(subtasks, int(subtasks.max()) + 1)
        if np.count_nonzero(counts) > 1:
            arrow = in_order(arrow, order)
        start = 0
        for subtask, count in enumerate(counts.tolist()):
            if count:
                self._hand_on(arrow.slice(start, count), [subtask], is_keyed=rows.is_keyed)
                start += count

    def _hand_on(self, arrow: pa.RecordBatch, subtasks: Iterable[int], *, is_keyed: bool) -> None:
        """Pass on rows in pieces of about `_PACKED_BYTES_MAX`; whole batches may be larger."""
        step = max(1, arrow.num_rows * _PACKED_BYTES_MAX // max(1, arrow.nbytes))
        for start in range(0, arrow.num_rows, step):
            self._add(arrow.slice(start, step), subtasks, is_keyed=is_keyed)
