"""Writers of a KafkaSink: one sends records at once, the other stages them for the transaction of a checkpoint.

They use two producers: RecordProducer sends records at once, and TransactionalProducer, which the
committer uses, writes them in transactions.

Source: Flink KafkaWriter.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY
from headrace.checkpoint.storage.subtask_storage import digest_of
from headrace.connectors.files.paths import file_system_of
from headrace.connectors.files.sink.staging import (
    FullDiskGuard,
    delete_file,
    make_staging_folder,
    remove_if_empty,
)
from headrace.connectors.kafka.clients import (
    REQUEST_TIMEOUT_S,
    ClientLog,
    KafkaError,
    KafkaFencedError,
    KafkaRecord,
    create_producer,
    kafka_client,
)
from headrace.connectors.kafka.serialization import KafkaRecordSerializationSchema
from headrace.connectors.kafka.staged_records import (
    INLINE_SIZE_MAX,
    StagedRecords,
    staging_folder,
    to_ipc_stream,
)
from headrace.core.errors import ProgramError
from headrace.core.randomness import system_random
from headrace.core.record_batch import RecordBatch
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import SinkWriter, owner_of_sink
from headrace.graph.pipeline_options import runs_in_batch

WRITE_TIMEOUT_S: Final = 120.0
"""Time for brokers to acknowledge waiting records, or to commit a transaction."""
_MESSAGE_TIMEOUT_MS: Final = 300_000
"""Default of librdkafka for `message.timeout.ms`."""
FILE_SIZE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of keys and values that a writer holds before it writes them to a file."""
WITHOUT_FOLDER_SIZE_MAX: Final = 4 * 1024 * 1024
"""Size of the records that one subtask may send with a checkpoint through the driver's memory."""


class RecordProducer:
    """Sends records without transactions; `flush` waits until all have arrived. One thread."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config: Final = config
        self._log: Final = ClientLog()
        self._producer = create_producer({**config, "logger": self._log.logger})
        self._errors: list[Any] = []

    def send(self, record: KafkaRecord) -> None:
        """Queue a record; waits while the queue is full. KafkaError if an earlier record did not arrive."""
        self._raise_errors()
        produce_record(self._producer, record, self._delivered)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all records have arrived. KafkaError if they do not."""
        left = self._producer.flush(WRITE_TIMEOUT_S)
        self._raise_errors()
        if left:
            reason = f"{left} records were not acknowledged"
            raise self._log.silence_of(self._producer, self._config, reason, WRITE_TIMEOUT_S)

    def close(self) -> None:
        """Drop records that have not been sent."""
        self._producer.purge()

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._errors.append(error)

    def _raise_errors(self) -> None:
        if self._errors:
            timeout_s = float(self._config.get("message.timeout.ms", _MESSAGE_TIMEOUT_MS)) / 1000
            raise self._log.error_of(self._producer, self._config, self._errors[0], timeout_s)


def produce_record(producer: Any, record: KafkaRecord, delivered: Any = None) -> None:
    """Queue one record; if the queue is full, wait for room."""
    where: dict[str, Any] = {"on_delivery": delivered} if delivered else {}
    if record.partition is not None:
        where["partition"] = record.partition
    if record.timestamp_ms is not None:
        where["timestamp"] = record.timestamp_ms
    while True:
        try:
            producer.produce(record.topic, value=record.value, key=record.key, **where)
            return
        except BufferError:
            producer.poll(0.1)


class TransactionalProducer:
    """Writes records in transactions under one transactional id. One thread.

    A new producer fences off every earlier one of the id, and aborts its open transaction.
    """

    def __init__(self, config: Mapping[str, Any], transactional_id: str) -> None:
        self._config: Final = config
        self._log: Final = ClientLog()
        own = {"transactional.id": transactional_id, "logger": self._log.logger}
        self._producer = create_producer({**config, **own})
        self._call(self._producer.init_transactions, REQUEST_TIMEOUT_S)

    def write(self, records: Iterable[KafkaRecord]) -> None:
        """Write all records, or none that readers of committed records see.

        After an error the result is unknown: read the topics, with another producer. Raises KafkaFencedError or
        KafkaError.
        """
        self._call(self._producer.begin_transaction)
        try:
            for record in records:
                self._call(produce_record, self._producer, record)
        except BaseException:
            self._abort()
            raise
        self._call(self._producer.commit_transaction, WRITE_TIMEOUT_S)

    def close(self) -> None:
        """Close the producer; the next producer of the id, or the brokers after a while, abort an open transaction."""
        self._producer.purge()

    def _abort(self) -> None:
        """Abort the open transaction, because readers of committed records wait for it until the brokers time out."""
        with contextlib.suppress(KafkaError):  # the first error is the one that is reported
            self._call(self._producer.abort_transaction, REQUEST_TIMEOUT_S)

    def _call(self, method: Any, *arguments: Any) -> None:
        library = kafka_client()
        try:
            method(*arguments)
        except library.KafkaException as error:
            cause = error.args[0]
            fenced = (library.KafkaError._FENCED, library.KafkaError.PRODUCER_FENCED)
            if cause.code() in fenced:
                raise KafkaFencedError(f"Kafka: {cause}") from error
            raise self._log.error_of(self._producer, self._config, cause) from error


def _size_of(record: KafkaRecord) -> int:
    return len(record.key or b"") + len(record.value or b"")


class DirectKafkaWriter(SinkWriter):
    """Sends records at once. `waits`: a checkpoint waits until all have arrived (at least once)."""

    def __init__(
        self,
        config: Mapping[str, str],
        schema: KafkaRecordSerializationSchema,
        *,
        waits: bool,
    ) -> None:
        self._producer = RecordProducer(config)
        self._schema = schema
        self._waits = waits
        self._sent_bytes = 0

    def write_batch(self, batch: RecordBatch) -> None:
        for record in serialized(batch, self._schema):
            self._producer.send(record)
            self._sent_bytes += _size_of(record)

    def sent_byte_count(self) -> int:
        return self._sent_bytes

    def flush(self, end_of_input: bool) -> None:
        if self._waits or end_of_input:
            self._producer.flush()

    def close(self) -> None:
        self._producer.close()


class StagingKafkaWriter(SinkWriter):
    """Keeps records until their checkpoint; above a size, in files in the checkpoints' folder."""

    def __init__(self, schema: KafkaRecordSerializationSchema, context: SubtaskContext) -> None:
        self._schema = schema
        self._context = context
        self._held: list[KafkaRecord] = []
        self._held_size_bytes = 0
        self._sent_bytes = 0
        self._inline_size_bytes = 0
        self._staged: list[StagedRecords] = []
        self._file_count = 0
        self._folder = staging_folder(context.settings, owner_of_sink(context))
        self._token = system_random().randbytes(8).hex()

    def write_batch(self, batch: RecordBatch) -> None:
        for record in serialized(batch, self._schema):
            self._held.append(record)
            size_bytes = _size_of(record)
            self._held_size_bytes += size_bytes
            self._sent_bytes += size_bytes
            if self._held_size_bytes >= FILE_SIZE_BYTES:
                self._stage()

    def sent_byte_count(self) -> int:
        return self._sent_bytes

    def flush(self, end_of_input: bool) -> None:
        """Do nothing: `prepare_commit` completes the records."""

    def prepare_commit(self, checkpoint_id: int) -> Sequence[bytes]:
        """Stage held records and hand everything over, in order."""
        if self._held:
            self._stage()
        staged, self._staged = self._staged, []
        self._inline_size_bytes = 0
        return [msgspec.msgpack.encode(one) for one in staged]

    def close(self) -> None:
        """Remove files that were not handed over."""
        self._held.clear()
        staged, self._staged = self._staged, []
        for one in staged:
            if one.path:
                file_system, path = file_system_of(one.path)
                delete_file(file_system, path)
                remove_if_empty(file_system, path.rpartition("/")[0])

    def _stage(self) -> None:
        content, path, digest = to_ipc_stream(self._held), "", b""
        if self._folder and len(content) > INLINE_SIZE_MAX:
            path, content, digest = self._write_file(content), b"", digest_of(content)
        self._inline_size_bytes += len(content)
        if self._inline_size_bytes > WITHOUT_FOLDER_SIZE_MAX:
            is_batch = runs_in_batch(self._context.settings)
            event = "the job's end" if is_batch else "one checkpoint"
            more = "" if is_batch else ", or take checkpoints more often"
            raise ProgramError(
                f"more than {WITHOUT_FOLDER_SIZE_MAX >> 20} MB of records of one subtask wait for {event}, but there "
                f"is no folder for them: set {CHECKPOINT_DIRECTORY.key} to a folder that the driver can read too{more}"
            )
        self._staged.append(
            StagedRecords(
                content,
                path,
                len(self._held),
                self._context.subtask_index,
                self._context.attempt_number,
                digest,
            )
        )
        self._held.clear()
        self._held_size_bytes = 0

    def _write_file(self, content: bytes) -> str:
        context = self._context
        name = f"{context.subtask_index}-{context.attempt_number}-{self._token}-{self._file_count}"
        self._file_count += 1
        file_system, folder = file_system_of(self._folder)
        with FullDiskGuard(context, folder):
            make_staging_folder(file_system, folder, context.settings)
            path = f"{folder}/{name}.arrow"
            with file_system.open_output_stream(path, compression=None) as stream:
                stream.write(content)
        return f"{self._folder}/{name}.arrow"


def serialized(batch: RecordBatch, schema: KafkaRecordSerializationSchema) -> list[KafkaRecord]:
    """Return the records of a batch as Kafka records, with their event times if they have any."""
    times: Any = None if batch.timestamps is None else batch.timestamps.tolist()
    if times is None:
        return [schema.serialize(row) for row in batch.rows()]
    return [
        schema.serialize(row, time if time >= 0 else None)
        for row, time in zip(batch.rows(), times, strict=True)
    ]
