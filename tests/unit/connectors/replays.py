"""Runs a source as a job would that fails and comes back: whatever happens, every record comes out once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from headrace.core.clock import ManualClock
from headrace.core.types.type_info import TypeInformation
from headrace.functions.source import InputStatus, Source, SourceReader
from tests.unit.connectors.connector_contexts import ConnectorContext, Rows

POLLS_MAX = 10_000


@dataclass(frozen=True)
class Life:
    """One attempt of a job: its parallelism, how often each subtask is polled before it dies, who gets which split."""

    parallelism: int
    polls_before_checkpoint: int
    polls_after_checkpoint: int
    owners: Sequence[int]


def lives() -> st.SearchStrategy[list[Life]]:
    """Attempts with changing parallelism; each ends in a failure some polls after its checkpoint."""
    numbers = st.integers(0, 4)
    life = st.builds(
        Life, st.integers(1, 4), numbers, numbers, st.lists(numbers, min_size=1, max_size=5)
    )
    return st.lists(life, min_size=1, max_size=4)


def rows_of(source: Source, attempts: Sequence[Life], value_type: TypeInformation) -> list[Any]:
    """What survives of all attempts, the last of which reads to the end: rows before each checkpoint count."""
    kept: list[Any] = []
    splits: Sequence[bytes] | None = None
    for number, life in enumerate(attempts, 1):
        clock = ManualClock()
        readers = _readers_of(source, life, splits, clock, value_type)
        outputs = [Rows() for _ in readers]
        _poll(readers, outputs, life.polls_before_checkpoint, clock)
        splits = [item for reader in readers for item in reader.snapshot_state(number)]
        kept += [row for output in outputs for row in output.values]
        _poll(readers, outputs, life.polls_after_checkpoint, clock)
        for reader in readers:
            reader.close()
    last = Life(2, 0, 0, (0, 1))
    clock = ManualClock()
    for reader in _readers_of(source, last, splits, clock, value_type):
        kept += _read_to_end(reader, clock)
    return kept


def _readers_of(
    source: Source,
    life: Life,
    splits: Sequence[bytes] | None,
    clock: ManualClock,
    value_type: TypeInformation,
) -> list[SourceReader]:
    readers: list[SourceReader] = []
    for index in range(life.parallelism):
        context = ConnectorContext(value_type, index, life.parallelism, clock)
        reader = source.create_reader(context)
        if splits is not None:
            reader.restore_splits(
                [
                    split
                    for number, split in enumerate(splits)
                    if life.owners[number % len(life.owners)] % life.parallelism == index
                ]
            )
        reader.start()
        readers.append(reader)
    return readers


def _poll(readers: list[SourceReader], outputs: list[Rows], count: int, clock: ManualClock) -> None:
    for _ in range(count):
        for reader, output in zip(readers, outputs, strict=True):
            reader.poll_next(output)
        clock.advance_ms(1)


def _read_to_end(reader: SourceReader, clock: ManualClock) -> list[Any]:
    output = Rows()
    for _ in range(POLLS_MAX):
        if reader.poll_next(output) is InputStatus.END_OF_INPUT:
            reader.close()
            return output.values
        clock.advance_ms(1)
    raise AssertionError("the reader does not end")
