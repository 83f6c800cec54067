"""The errors of the exchange; each names the peer, the channel or the option concerned.

NetworkError
+- ProtocolError                 the peer violated the protocol: the affected channel is
|  |                             closed, or the connection if no channel is affected
|  +- UnknownFrameError          unsupported frame id or protocol version
|  +- SequenceGapError           a frame was lost, duplicated or reordered by the transport
|  +- CreditOverspentError       data came without credit
|  +- CorruptFrameError          a frame is not what was sent: its checksum differs
|  +- CorruptBatchError          the body of a data frame is no Arrow message of the announced schema
|  +- network.wire.frame_splitter: EncryptedStreamError
+- HandshakeError                the two sides could not agree or did not prove the shared secret
+- ConnectionLostError           the peer or the link is gone
+- PartitionError                a partition cannot be read: its producer must be restarted too
|  +- PartitionNotFoundError
|  +- PartitionConnectionError
|  +- ProducerFailedError
+- StorageError                  a file of a stored partition cannot be written or read
|  +- CorruptFileError           data read differs from data written
+- IngestRefusedError            a source subtask does not accept pushed data (any more)
+- InsufficientBuffersError      network memory is below a task's minimum
+- RecordTooLargeError           one record exceeds the capacity of its channel
+- network.memory.sizing: NetworkMemoryError
+- shuffle_service.errors: PushNotAdmittedError, PushRefusedError, PushStalledError, ShuffleServiceLostError
+- InvalidChannelError           a custom partitioner chose a channel that does not exist
"""

from typing import TypeVar

from headrace.core.errors import ErrorDomain, HeadraceError, short_repr

E = TypeVar("E", bound="NetworkError")


class NetworkError(HeadraceError):
    """Base of all errors that the exchange raises."""


def copy_of(error: E) -> E:
    """Return an equal error without traceback and cause.

    Use it to store an error, and each time that the stored error is raised: a traceback would keep its frames alive and
    with them their data, such as received batches.
    """
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    return copied


class ProtocolError(NetworkError):
    """The peer broke the protocol; the affected channel or connection is not read any further."""

    def __init__(self, peer: str, what: str) -> None:
        super().__init__(f"protocol violation by {peer}: {what}")
        self.peer = peer


class UnknownFrameError(ProtocolError):
    """A frame has an unsupported id, version or magic number."""


class SequenceGapError(ProtocolError):
    """An element of a channel does not have the next sequence number."""

    def __init__(self, peer: str, channel: str, expected: int, received: int) -> None:
        super().__init__(
            peer, f"channel {channel} expected element {expected} and received {received}"
        )
        self.expected = expected
        self.received = received


class CreditOverspentError(ProtocolError):
    """Data arrived for which no credit was granted."""

    def __init__(self, peer: str, channel: str, granted: int, spent: int) -> None:
        super().__init__(
            peer, f"channel {channel} had {granted} credit(s) and was sent data for {spent}"
        )
        self.granted = granted
        self.spent = spent


class CorruptFrameError(ProtocolError):
    """A received frame differs from the sent one, or lacks the checksum that both sides agreed on."""


class CorruptBatchError(ProtocolError):
    """The bytes of a batch cannot be read with the channel's schema."""


class HandshakeError(NetworkError):
    """The connection was refused before any frame was exchanged."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"no connection with {peer}: {reason}")
        self.peer = peer
        self.reason = reason


class ConnectionLostError(NetworkError):
    """An established connection ended; the task manager at its other end may be lost."""

    domain, recoverable = ErrorDomain.EXTERNAL, True
    is_consequence = True

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(
            f"connection with task manager {peer} was lost ({reason}): its process may have died; see its log"
        )
        self.peer = peer
        self.reason = reason


class PartitionError(NetworkError):
    """A partition cannot be read; restart its producer as well as the consumer."""

    is_consequence = True

    def __init__(self, partition_text: str, message: str) -> None:
        super().__init__(message)
        self.partition_text = partition_text


class PartitionNotFoundError(PartitionError):
    """The producer has not registered this partition, or has released it."""

    def __init__(self, partition_text: str, peer: str) -> None:
        super().__init__(
            partition_text,
            f"result partition {partition_text} is not registered on task manager {peer}: "
            "its producer never started there, or has released it",
        )
        self.peer = peer


class PartitionConnectionError(PartitionError):
    """The task manager that holds a partition cannot be reached."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, partition_text: str, peer: str, reason: str) -> None:
        super().__init__(
            partition_text,
            f"cannot connect to task manager {peer} for result partition {partition_text}: {reason}",
        )
        self.peer = peer
        self.reason = reason


class ProducerFailedError(PartitionError):
    """The producer of a partition failed or was cancelled before it had finished."""

    def __init__(self, partition_text: str, cause_text: str) -> None:
        super().__init__(
            partition_text,
            f"the producer of result partition {partition_text} failed: {cause_text}",
        )
        self.cause_text = cause_text


class InsufficientBuffersError(NetworkError):
    """A task needs more network memory, at the smallest segment size, than is left."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(
        self, owner: str, required: int, available: int, total: int, page_bytes: int
    ) -> None:
        super().__init__(
            f"insufficient number of network buffers for {owner}: required {required}, but only {available} of "
            f"{total} (of {page_bytes} bytes each) are left; raise 'taskmanager.memory.network.max', "
            "'taskmanager.memory.network.min' or 'taskmanager.memory.network.fraction', or lower the parallelism or "
            "'taskmanager.memory.segment-size'"
        )
        self.owner = owner
        self.required = required
        self.available = available


class RecordTooLargeError(NetworkError):
    """One record is larger than its channel may hold at once."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"a record of {size_bytes} bytes does not fit the {limit_bytes} bytes that its channel may hold: raise "
            "'taskmanager.memory.segment-size' or 'taskmanager.network.memory.floating-buffers-per-gate'"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class InvalidChannelError(NetworkError):
    """A custom partitioner returned something that is not the index of a channel."""

    domain, recoverable = ErrorDomain.USER, True

    def __init__(self, key: object, returned: object, channel_count: int) -> None:
        super().__init__(
            f"the custom partitioner returned {short_repr(returned)} for the key {short_repr(key)}: "
            f"it must be an integer in [0, {channel_count})"
        )
        self.key = key
        self.returned = returned
        self.channel_count = channel_count


class StorageError(NetworkError):
    """A file of a blocking or hybrid partition cannot be written or read."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"stored result {place}: {reason}; 'io.tmp.dirs' names the directories of such files"
        )
        self.place = place
        self.reason = reason


class CorruptFileError(StorageError):
    """Data read from a stored partition differs from the data written."""


class IngestRefusedError(NetworkError):
    """A source subtask refuses a pushed partition: it has ended or was replaced, or a newer attempt pushes."""

    is_consequence = True

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"task manager {peer} refused a pushed partition: {reason}")
        self.peer = peer
        self.reason = reason
