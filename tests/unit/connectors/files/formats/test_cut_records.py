"""CutRecords: whatever is cut where, each record is read once, also over restarts in the midst of a batch."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.files.formats.splits import CutRecords, FileSplit, decode_file_split
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types

NUMBERS = BatchType(Types.LONG())
SPLIT = FileSplit("/data", "numbers", 0, 100, 100, 0)


class Batches:
    """Batches of these sizes over the numbers from 0 on; a position is a number of batches. Implements FileRecords."""

    unread_bytes = None

    def __init__(self, sizes: list[int], split: FileSplit) -> None:
        self._sizes = sizes
        self.position: int | None = split.position

    def next_batch(self) -> RecordBatch | None:
        index = self.position or 0
        if index == len(self._sizes):
            return None
        self.position = index + 1
        first = sum(self._sizes[:index])
        return RecordBatch.of_rows(NUMBERS, list(range(first, first + self._sizes[index])))

    def close(self) -> None:
        pass


@given(
    st.lists(st.integers(0, 9), max_size=8),
    st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1),
)
def test_each_record_comes_once_however_batches_are_cut_and_whenever_reading_begins_again(
    sizes: list[int], steps: list[tuple[int, bool]]
) -> None:
    split, found = SPLIT, list[int]()
    records = CutRecords(Batches(sizes, split), split)
    turn = 0
    while True:
        wanted, restarts = steps[turn % len(steps)]
        turn += 1
        batch = records.next_batch(wanted)
        if batch is None:
            break
        assert batch.num_rows <= wanted
        found += batch.rows()
        # Always to begin again would read the same empty batches for ever, as would no reader.
        if restarts and batch.num_rows:
            split = decode_file_split(records.as_read.encoded())
            records = CutRecords(Batches(sizes, split), split)
    assert found == list(range(sum(sizes)))


def test_a_position_between_batches_is_the_format_s_own() -> None:
    records = CutRecords(Batches([3, 3], SPLIT), SPLIT)
    records.next_batch(2)
    assert (records.as_read.position, records.as_read.skipped_count) == (None, 2)
    records.next_batch(2)
    assert (records.as_read.position, records.as_read.skipped_count) == (1, 0)
