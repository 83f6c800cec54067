"""The digest job: each number emits a row that depends on all earlier numbers of its key.

    source (paced numbers) [-> poison] -> keyBy -> digest (value state, map state, timers) -> files, exactly once

A row that is lost, repeated, reordered within its key, or computed from wrong state affects every later row of its
key. `expected_rows` computes the answer in plain Python in one loop, which shares nothing with the engine.
"""

import enum
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.api.environment import StreamExecutionEnvironment
from headrace.api.streams.data_stream import DataStream
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.process.failpoints import Failpoint, reach
from headrace.core.types.type_info import Types
from headrace.functions.failures import FailurePolicy
from headrace.functions.process import KeyedProcessFunction, OutputTag
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.state import MapStateDescriptor, ValueStateDescriptor
from headrace.functions.watermarks import TimestampAssigner, WatermarkStrategy
from testkit.chaos.jobs import OUTPUT, ROW_TYPE, output_files

TIMER_SPAN_MS: Final = 500
"""Event time between two timers of a key; one number is one millisecond."""
LAST_DIGITS: Final = 10
DEAD_LETTERS: Final = "dead-letters"
"""Folder of a run with the records that were set aside."""
POISON_TEXT: Final = "poison"
_POISON: Final = OutputTag("poison", Types.PICKLED_BYTE_ARRAY())


class PoisonPolicy(enum.Enum):
    """Handling of a record for which a function raises an error."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True)
class DigestJob:
    """A job over `count` numbers at `rows_per_second`, with `key_count` keys.

    `key_count` is a multiple of `parallelism`, so that one reader emits all numbers of a key, in order. One number in
    `poison_every` is poison; 0: none.
    """

    count: int = 12_000
    rows_per_second: float = 4_000
    key_count: int = 96
    parallelism: int = 2
    poison_every: int = 0
    policy: PoisonPolicy = PoisonPolicy.FAIL

    @property
    def name(self) -> str:
        return "digest"

    def is_poison(self, number: int) -> bool:
        """Return whether a function raises an error for this number."""
        return self.poison_every > 0 and number % self.poison_every == self.poison_every - 1

    def build(self, env: StreamExecutionEnvironment, directory: Path) -> None:
        key_count = self.key_count
        env.set_parallelism(self.parallelism)
        source = DataGeneratorSource(
            lambda index: index, self.count, Types.LONG(), rows_per_second=self.rows_per_second
        )
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
            EventTime()
        )
        numbers = env.from_source(source, strategy, "numbers", Types.LONG())
        if self.poison_every:
            numbers = _without_poison(numbers, self, directory)
        rows = (
            numbers.key_by(lambda number: number % key_count, key_type=Types.LONG())
            .process(Digest(), output_type=ROW_TYPE)
            .uid("digest")
        )
        rows.rebalance().sink_to(output_files(directory / OUTPUT)).name("files").uid("files")

    def expected_rows(self) -> list[str]:
        """Return the rows that must be committed; numbers of a key come in order, since one reader emits them."""
        rows: list[str] = []
        chains: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
        digits: dict[int, dict[int, dict[int, int]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(int))
        )
        for number in range(self.count):
            if self.is_poison(number):
                continue
            key = number % self.key_count
            count, checksum = chains[key]
            chains[key] = (count + 1, next_checksum(checksum, number))
            rows.append(number_row(key, *chains[key]))
            time = timer_of(number)
            digits[key][time][time * LAST_DIGITS + number % LAST_DIGITS] += 1
        for key, timers in digits.items():
            rows += [timer_row(key, time, sorted(found.items())) for time, found in timers.items()]
        return rows

    def place_of(self, row: str) -> tuple[Hashable, int] | None:
        """Return the key of a number's row, and its place among the rows of that key."""
        if not row.startswith("n "):
            return None
        _, key, count, _ = row.split(" ")
        return key, int(count)


class EventTime(TimestampAssigner):
    """Timestamp assigner: a number is its own event time."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


class Digest(KeyedProcessFunction):
    """Chains a checksum over the numbers of a key, counts their last digits, and emits the counts by timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the states."""
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self._chain: Any = runtime_context.get_state(ValueStateDescriptor("chain", pair))
        self._digits: Any = runtime_context.get_map_state(
            MapStateDescriptor("digits", Types.LONG(), Types.LONG())
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[str]:
        """Emit one row per number."""
        reach(Failpoint.USER_CODE)
        count, checksum = self._chain.value() or (0, 0)
        count, checksum = count + 1, next_checksum(checksum, value)
        self._chain.update((count, checksum))
        digit = timer_of(value) * LAST_DIGITS + value % LAST_DIGITS
        self._digits.put(digit, (self._digits.get(digit) or 0) + 1)
        ctx.timer_service().register_event_time_timer(timer_of(value))
        yield number_row(ctx.get_current_key(), count, checksum)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        """Emit one row per key and span of time."""
        digits = sorted(
            (key, count) for key, count in self._digits.items() if key // LAST_DIGITS == timestamp
        )
        for key, _ in digits:
            self._digits.remove(key)
        yield timer_row(ctx.get_current_key(), timestamp, digits)


def _without_poison(numbers: DataStream, job: DigestJob, directory: Path) -> DataStream:
    """Return the numbers for which no error is raised; the others are handled by the policy."""

    def refuse_poison(number: int) -> int:
        if job.is_poison(number):
            raise ValueError(f"{number} is {POISON_TEXT}")
        return number

    checked = numbers.map(refuse_poison, output_type=Types.LONG()).name("poison").uid("poison")
    match job.policy:
        case PoisonPolicy.FAIL:
            return checked
        case PoisonPolicy.SKIP:
            return checked.on_failure(FailurePolicy.SKIP)
        case PoisonPolicy.DEAD_LETTER:
            checked = checked.on_failure(_POISON)
            letters = checked.get_side_output(_POISON).map(_dead_letter, output_type=ROW_TYPE)
            letters.sink_to(output_files(directory / DEAD_LETTERS)).name("letters").uid("letters")
            return checked


def _dead_letter(failed: tuple[int, str]) -> str:
    return f"{failed[0]}: {failed[1]}"


def expected_dead_letters(job: DigestJob) -> list[str]:
    """Return the records that are set aside, in any order."""
    poison = (number for number in range(job.count) if job.is_poison(number))
    return [f"{number}: ValueError: {number} is {POISON_TEXT}" for number in poison]


def next_checksum(checksum: int, number: int) -> int:
    """Return the next link of a key's chain."""
    return zlib.crc32(int(number).to_bytes(8, "big"), checksum)


def timer_of(number: int) -> int:
    """Return the time of the timer that a number sets."""
    return number - number % TIMER_SPAN_MS + TIMER_SPAN_MS - 1


def number_row(key: int, count: int, checksum: int) -> str:
    """Return the row for a number."""
    return f"n {key} {count} {checksum}"


def timer_row(key: int, time_ms: int, digits: list[tuple[int, int]]) -> str:
    """Return the row for a timer."""
    counts = ",".join(f"{digit}:{count}" for digit, count in digits)
    return f"t {key} {time_ms} {counts}"
