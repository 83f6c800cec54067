"""What do encryption and compression cost?

TLS: one channel of rows of 200 bytes over TCP, with and without, turn by turn. Compression: batches of 128 KiB through
the compressor that stored partitions use, there and back on one core, for three kinds of data.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.network.endpoints import RowMaker
from benchmarks.network.figures import paired_share_percent
from benchmarks.network.matrix import measure_throughput, raw_mb_per_s
from benchmarks.network.peer import TCP, TLS, Peers
from headrace.core.config import Settings
from headrace.network.stored.file_format import BatchCompressor, decompress

ROW_BYTES = 200
CODECS = ("NONE", "LZ4", "ZSTD")
WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "stream",
    "batch",
    "credit",
    "channel",
    "window",
    "watermark",
    "key",
    "state",
    "a",
    "is",
    "on",
]
COMPRESSION_ROWS = 16384
COMPRESSION_SECONDS = 0.4


def measure_tls(seconds: float, repeats: int, advance: Callable[[str], None]) -> dict[str, Any]:
    """MB per second over TCP and over TLS."""
    rows = RowMaker(ROW_BYTES)
    cell = {"row_bytes": ROW_BYTES, "channels": 1, "timeout_ms": -1}
    plain: list[float] = []
    encrypted: list[float] = []
    raw: list[float] = []
    # One rests while the other works, so that both consumers have the same cores.
    with Peers(TCP) as tcp, Peers(TLS, consumer_cores=tcp.consumer_cores) as tls:
        for _ in range(repeats):
            plain.append(measure_throughput(tcp, rows, cell, seconds)["mb_per_s"])
            encrypted.append(measure_throughput(tls, rows, cell, seconds)["mb_per_s"])
            raw += raw_mb_per_s(tcp, rows, seconds).values()
            advance("TLS")
    found = {
        "tcp_mb_per_s": max(plain),
        "tls_mb_per_s": max(encrypted),
        "raw_tcp_mb_per_s": round(max(raw), 1),
        "tls_share_of_tcp_percent": paired_share_percent(encrypted, plain),
    }
    return {"tls": found}


def measure_compression(advance: Callable[[str], None]) -> dict[str, Any]:
    """MB per second there and back, and how many times smaller."""
    found: list[dict[str, Any]] = []
    for data, array in sample_columns().items():
        body = pa.RecordBatch.from_arrays([array], names=["value"]).serialize()
        for codec in CODECS:
            found.append({"data": data, "codec": codec, **round_trip(body, codec)})
            advance(f"{codec}, {data}")
    return {"compression": found}


def sample_columns() -> dict[str, pa.Array]:
    """A column of each kind, about 128 KiB."""
    random = np.random.default_rng(0)
    count = COMPRESSION_ROWS
    words = [" ".join(random.choice(WORDS, 4)) for _ in range(count // 3)]
    jitter = random.integers(0, 200, count)
    return {
        "random integers": pa.array(random.integers(-(1 << 62), 1 << 62, count)),
        "words": pa.array(words),
        "timestamps": pa.array(1_700_000_000_000 + np.arange(count) * 100 + jitter),
    }


def round_trip(body: pa.Buffer, codec: str) -> dict[str, float]:
    """Compress and decompress one body for a while."""
    option = {"taskmanager.network.compression.codec": codec}
    compressor = BatchCompressor.from_settings(Settings(option))
    number, stored = compressor.compress(body)
    stored_buffer = stored if isinstance(stored, pa.Buffer) else pa.py_buffer(bytes(stored))
    found = {"ratio": round(body.size / stored_buffer.size, 2)}
    if codec != "NONE":
        there = calls_per_second(lambda: compressor.compress(body))
        back = calls_per_second(lambda: decompress(number, stored_buffer, body.size))
        found |= {"compress_mb_per_s": round(there * body.size / 1e6, 1)}
        # What did not become smaller is stored as it is.
        found |= {"decompress_mb_per_s": round(back * body.size / 1e6, 1)} if number else {}
    return found


def calls_per_second(call: Callable[[], Any]) -> float:
    count, began = 0, time.perf_counter()
    while (seconds := time.perf_counter() - began) < COMPRESSION_SECONDS:
        call()
        count += 1
    return count / seconds
