"""KafkaReader: reads its partitions with one consumer, without group rebalancing.

Source: Flink KafkaSourceReader, KafkaPartitionSplitReader.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from headrace.connectors.kafka.clients import (
    ClientLog,
    KafkaError,
    client_partition,
    create_consumer,
    kafka_client,
)
from headrace.connectors.kafka.offsets import KafkaPartitionSplit, KafkaTopicPartition
from headrace.core.record_batch import RecordBatch
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.serialization import DeserializationSchema
from headrace.functions.source import (
    InputStatus,
    SourceOutput,
    SourceSplit,
    SplitReader,
    encode_split,
)
from headrace.graph.pipeline_options import runs_in_batch

RECORD_COUNT_MAX: Final = 1000
"""Records taken from the consumer at a time."""
_COUNT_INTERVAL_MS: Final = 1_000
POLL_INTERVAL_MS: Final = 10
"""Time between two polls of a client without records, because it cannot signal new ones."""


class KafkaReader(SplitReader):
    """Reads the partitions of one subtask. Positions follow the emitted records, not the fetched ones.

    In BATCH mode partitions are read one after the other, and records come in batches of equal size: an attempt that
    Spark repeats gives the same batches at any speed of the brokers.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        schema: DeserializationSchema,
        context: SubtaskContext,
        *,
        commits_offsets: bool,
    ) -> None:
        super().__init__(context)
        self._schema = schema
        self._commits_offsets = commits_offsets
        self._config: Final = config
        self._log: Final = ClientLog()
        self._consumer: Any = create_consumer({**config, "logger": self._log.logger})
        self._splits: dict[KafkaTopicPartition, KafkaPartitionSplit] = {}
        self._new: list[KafkaPartitionSplit] = []
        self._is_batch: Final = runs_in_batch(context.settings)
        # Records that make no whole batch yet, in BATCH mode.
        self._held: list[Any] = []
        # Positions by checkpoint, until it is published.
        self._snapshots: dict[int, dict[KafkaTopicPartition, int]] = {}
        self._is_look_scheduled = False
        self._pending_count: int | None = None
        self._counted_ms = 0
        self._unreadable_count = 0

    def add_splits(self, splits: Sequence[SourceSplit]) -> None:
        self._new += [KafkaPartitionSplit.decoded(split) for split in splits]

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit the records that the consumer has fetched, a batch per partition."""
        self._begin_new(output)
        if not self._splits:
            return InputStatus.END_OF_INPUT if self.has_no_more_splits else self._wait()
        self._count_pending()
        rows_max = RECORD_COUNT_MAX if self._is_batch else output.rows_wanted
        wanted = min(RECORD_COUNT_MAX, rows_max) - len(self._held)
        messages = self._consumer.consume(wanted, 0)
        if not messages:
            self._log.tell_silence(self._config)
            return self._wait()
        self._log.answered()
        by_partition: dict[KafkaTopicPartition, list[Any]] = {}
        for message in messages:
            partition = KafkaTopicPartition(message.topic(), message.partition())
            by_partition.setdefault(partition, []).append(message)
        for partition, received in by_partition.items():
            if partition in self._splits:
                self._take(partition, received, output)
        return InputStatus.MORE_AVAILABLE

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        splits = [*self._splits.values(), *self._new]
        self._snapshots[checkpoint_id] = {split.partition: split.offset for split in splits}
        return [encode_split(split.encoded()) for split in splits]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit the offsets to the consumer group, for people who watch it; Headrace does not depend on them."""
        positions = self._snapshots.pop(checkpoint_id, {})
        self._snapshots = {
            one: kept for one, kept in self._snapshots.items() if one > checkpoint_id
        }
        if positions and self._commits_offsets:
            offsets = [
                client_partition(partition, offset) for partition, offset in positions.items()
            ]
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        by_id = {partition.split_id: partition for partition in self._splits}
        self._consumer.pause([client_partition(by_id[one]) for one in to_pause if one in by_id])
        self._consumer.resume([client_partition(by_id[one]) for one in to_resume if one in by_id])

    def pending_record_count(self) -> int | None:
        return self._pending_count

    def unreadable_record_count(self) -> int:
        return self._unreadable_count

    def _count_pending(self) -> None:
        """Count, once a second, the records after the positions, as the consumer knew with its last records."""
        now_ms = self.context.timers.now_ms()
        if now_ms - self._counted_ms < _COUNT_INTERVAL_MS:
            return
        self._counted_ms, count, is_known = now_ms, 0, False
        for partition, split in self._splits.items():
            _, end = self._consumer.get_watermark_offsets(client_partition(partition), cached=True)
            if end >= 0 and split.offset >= 0:
                stop = end if split.stopping_offset is None else min(end, split.stopping_offset)
                count, is_known = count + max(0, stop - split.offset), True
        self._pending_count = count if is_known else None

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _begin_new(self, output: SourceOutput) -> None:
        while self._new and not (self._is_batch and self._splits):
            split = self._new.pop(0)
            if split.is_at_end:
                continue
            self._splits[split.partition] = split
            output.add_split(split.partition.split_id)
            self._consumer.incremental_assign([client_partition(split.partition, split.offset)])

    def _take(
        self, partition: KafkaTopicPartition, messages: Sequence[Any], output: SourceOutput
    ) -> None:
        """Emit the records of one partition up to its stopping offset, and end it there."""
        split = self._splits[partition]
        position = split.offset
        for message in messages:
            if message.error() is not None:
                position = max(position, self._offset_of_end(message))
                continue
            if split.stopping_offset is None or message.offset() < split.stopping_offset:
                self._held.append(message)
            position = message.offset() + 1
        moved = KafkaPartitionSplit(partition, position, split.stopping_offset)
        if len(self._held) >= RECORD_COUNT_MAX or moved.is_at_end or not self._is_batch:
            batch = self._batch(self._held)
            self._held.clear()
            if batch.num_rows:
                output.emit(batch, partition.split_id)
        if moved.is_at_end:
            del self._splits[partition]
            self._consumer.incremental_unassign([client_partition(partition)])
            output.release_split(partition.split_id)
        else:
            self._splits[partition] = moved

    def _offset_of_end(self, message: Any) -> int:
        """Return the offset of a partition's end, after uncommitted records and transaction markers. KafkaError."""
        error = message.error()
        if error.code() != kafka_client().KafkaError._PARTITION_EOF:
            raise KafkaError(f"Kafka: {error} (reading {message.topic()}-{message.partition()})")
        return message.offset()

    def _batch(self, messages: Sequence[Any]) -> RecordBatch:
        deserialize = self._schema.deserialize
        read = [(deserialize(message.value()), message.timestamp()[1]) for message in messages]
        # As in Flink, None means that a message has no record.
        rows = [row for row, _ in read if row is not None]
        if len(rows) < len(read):
            contents = (message.value() for message in messages)
            self._unreadable_count += sum(
                row is None and content is not None
                for (row, _), content in zip(read, contents, strict=True)
            )
        times = np.array([time for row, time in read if row is not None], np.int64)
        return RecordBatch.of_rows(self.context.types.output, rows, times)

    def _wait(self) -> InputStatus:
        """Schedule another poll soon."""
        if not self._is_look_scheduled:
            self._is_look_scheduled = True
            timers = self.context.timers
            timers.schedule(timers.now_ms() + POLL_INTERVAL_MS, self._look_again)
        return InputStatus.NOTHING_AVAILABLE

    def _look_again(self, _: int) -> None:
        self._is_look_scheduled = False
        self.context.wake()
