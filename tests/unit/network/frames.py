"""One example of every frame, with the bytes it must have on the wire."""

from headrace.core.elements import LatencyMarker, PlacedMarker, Watermark, WatermarkStatus
from headrace.core.ids import JobId, OperatorId
from headrace.network.wire.frames import (
    AckAllUserRecordsProcessed,
    AddCredit,
    Backlog,
    Cancel,
    Close,
    Data,
    Error,
    ErrorCode,
    Event,
    EventTrait,
    Hello,
    IngestAccept,
    IngestData,
    IngestEnd,
    IngestOpen,
    KeepAlive,
    NewBufferSize,
    PartitionRequest,
    Proof,
    PushAccept,
    PushCommit,
    PushData,
    PushEvent,
    PushOpen,
    ResumeConsumption,
    Schema,
)
from headrace.network.wire.framing import Frame
from tests.unit.network.exchange import partition_id

_MARKERS = (PlacedMarker(0, Watermark(-5)), PlacedMarker(3, WatermarkStatus(True)))
_LATENCY = PlacedMarker(2, LatencyMarker(0x0123456789, OperatorId(b"o" * 16), 9))

GOLDEN: dict[str, tuple[Frame, str]] = {
    "hello": (
        Hello(1, 1, 0, b"c" * 32, b"tm-1"),
        "48445257 01 01 0000 00000026 00000004 01 01 00000000" + "63" * 32 + "746d2d31",
    ),
    "proof": (Proof(b"p" * 32), "48445257 01 02 0000 00000020 00000000" + "70" * 32),
    "close": (Close(), "48445257 01 03 0000 00000000 00000000"),
    "keep alive": (KeepAlive(), "48445257 01 04 0000 00000000 00000000"),
    "partition request": (
        PartitionRequest(7, partition_id(2, 1), 3, 2, 10, 1 << 20, 1 << 33),
        "48445257 01 0a 0000 00000058 00000000 00000007"
        + "64" * 16
        + "00000002"
        + "6a" * 16
        + "70726f64756365725f5f5f5f5f5f5f5f 00000002 00000001 00000003 00000002 0000000a 00100000 "
        "0000000200000000",
    ),
    "schema": (
        Schema(7, 0x1122334455667788, b"SCHEMA"),
        "48445257 01 0b 0000 0000000c 00000006 00000007 1122334455667788 534348454d41",
    ),
    "data with a latency marker": (
        Data(7, 4, 1, 0, 3, 0xAB, (_LATENCY,), b"BODY"),
        "48445257 01 0c 0000 00000041 00000004 00000007 0000000000000004 00000001 00000000 00000003"
        "00000000000000ab 00000002 03 0000000123456789" + "6f" * 16 + "00000009 424f4459",
    ),
    "data": (
        Data(7, 1, 2, 5, 3, 0xAB, _MARKERS, b"BODY"),
        "48445257 01 0c 0000 0000003a 00000004 00000007 0000000000000001 00000002 00000005 00000003"
        "00000000000000ab 00000000 00 fffffffffffffffb 00000003 01 0000000000000001 424f4459",
    ),
    "data without rows": (
        Data(7, 1, 1, 0, 0, 0, _MARKERS[:1], b""),
        "48445257 01 0c 0000 0000002d 00000000 00000007 0000000000000001 00000001 00000000 00000000"
        "0000000000000000 00000000 00 fffffffffffffffb",
    ),
    "event": (
        Event(7, 9, 4, 1, 0, 1),
        "48445257 01 0d 0000 0000001a 00000000 00000007 0000000000000009 00000004 01 00 0000000000000001",
    ),
    "event with priority that blocks upstream": (
        Event(7, 9, 0, 1, EventTrait.PRIORITY | EventTrait.BLOCKS_UPSTREAM, -2),
        "48445257 01 0d 0000 0000001a 00000000 00000007 0000000000000009 00000000 01 03 fffffffffffffffe",
    ),
    "event with the end of an output's channel state": (
        Event(7, 9, 0, 5, EventTrait.BLOCKS_UPSTREAM, 0),
        "48445257 01 0d 0000 0000001a 00000000 00000007 0000000000000009 00000000 05 02 0000000000000000",
    ),
    "event with a barrier": (
        Event(7, 9, 0, 3, EventTrait.BLOCKS_UPSTREAM, 7, b"BODY"),
        "48445257 01 0d 0000 0000001a 00000004 00000007 0000000000000009 00000000 03 02 0000000000000007"
        "424f4459",
    ),
    "add credit": (AddCredit(7, 3), "48445257 01 0e 0000 00000008 00000000 00000007 00000003"),
    "backlog": (Backlog(7, 12), "48445257 01 0f 0000 00000008 00000000 00000007 0000000c"),
    "cancel": (Cancel(7), "48445257 01 10 0000 00000004 00000000 00000007"),
    "error": (
        Error(7, ErrorCode.PRODUCER_FAILED, b"why"),
        "48445257 01 11 0000 00000006 00000003 00000007 0002 776879",
    ),
    "resume consumption": (
        ResumeConsumption(7),
        "48445257 01 12 0000 00000004 00000000 00000007",
    ),
    "acknowledge all user records processed": (
        AckAllUserRecordsProcessed(7),
        "48445257 01 13 0000 00000004 00000000 00000007",
    ),
    "new buffer size": (
        NewBufferSize(7, 1 << 33),
        "48445257 01 18 0000 0000000c 00000000 00000007 0000000200000000",
    ),
    "ingest open": (
        IngestOpen(0, JobId(b"j" * 16), OperatorId(b"o" * 16), 1, 2, 3),
        "48445257 01 14 0000 00000030 00000000 00000000"
        + "6a" * 16
        + "6f" * 16
        + "00000001 00000002 00000003",
    ),
    "ingest accept": (
        IngestAccept(0, 1000, 4),
        "48445257 01 15 0000 00000010 00000000 00000000 00000000000003e8 00000004",
    ),
    "ingest data": (
        IngestData(0, 1000, 10, 0xAB, b"BODY"),
        "48445257 01 16 0000 00000018 00000004 00000000 00000000000003e8 0000000a 00000000000000ab 424f4459",
    ),
    "ingest end": (
        IngestEnd(0, 1000),
        "48445257 01 17 0000 0000000c 00000000 00000000 00000000000003e8",
    ),
    "push open": (
        PushOpen(0, partition_id(2, 1), 3),
        "48445257 01 1e 0000 00000044 00000000 00000000 64646464646464646464646464646464 "
        "00000002 6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a 70726f64756365725f5f5f5f5f5f5f5f "
        "00000002 00000001 00000003",
    ),
    "push accept": (
        PushAccept(0, 4, 65536),
        "48445257 01 1f 0000 0000000c 00000000 00000000 00000004 00010000",
    ),
    "push data": (
        PushData(0, 2, 5, 10, 0xABCDEF, _MARKERS, b"arrow"),
        "48445257 01 20 0000 00000036 00000005 00000000 00000002 0000000000000005 "
        "0000000a 0000000000abcdef "
        "0000000000fffffffffffffffb000000030100000000000000016172726f77",
    ),
    "push event": (
        PushEvent(0, 6, 1, 1),
        "48445257 01 21 0000 00000015 00000000 00000000 0000000000000006 01 0000000000000001",
    ),
    "push commit": (
        PushCommit(0, 7),
        "48445257 01 22 0000 0000000c 00000000 00000000 0000000000000007",
    ),
}


def golden_bytes(name: str) -> bytes:
    return bytes.fromhex(GOLDEN[name][1])


CHECKSUMMED: dict[str, str] = {
    "schema": "48445257 01 0b 0001 00000014 00000006 00000007 1122334455667788 487686d4 36203560 534348454d41",
    "data": "48445257 01 0c 0001 00000042 00000004 00000007 0000000000000001 00000002 00000005 00000003"
    "00000000000000ab 00000000 00 fffffffffffffffb 00000003 01 0000000000000001 ed3de606 e9610a8e 424f4459",
    "data without rows": "48445257 01 0c 0001 00000035 00000000 00000007 0000000000000001 00000001 00000000 00000000"
    "0000000000000000 00000000 00 fffffffffffffffb 00000000 59b6fa1e",
    "event": "48445257 01 0d 0001 00000022 00000000 00000007 0000000000000009 00000004 01 00 "
    "0000000000000001 00000000 d697f3d8",
    "event with a barrier": "48445257 01 0d 0001 00000022 00000004 00000007 0000000000000009 00000000 03 02 "
    "0000000000000007 ed3de606 80e7afc0 424f4459",
    "ingest data": "48445257 01 16 0001 00000020 00000004 00000000 00000000000003e8 0000000a "
    "00000000000000ab ed3de606 165ae9ec 424f4459",
    "push data": "48445257 01 20 0001 0000003e 00000005 00000000 00000002 0000000000000005 0000000a "
    "0000000000abcdef 00000000 00 fffffffffffffffb 00000003 01 0000000000000001 d837ee3e 781b42eb 6172726f77",
    "push event": "48445257 01 21 0001 0000001d 00000000 00000000 0000000000000006 01 0000000000000001 "
    "00000000 8bcfd1e5",
}
"""The same frames with checksums: of the body, and of all that stands before the second."""
