"""Reads batches of which one bit has turned over, in a process of its own: what goes wrong may be its end.

    python -m tests.unit.network.batches.flipped_bits

Prints how many flips each outcome had, as JSON.
"""

import json
import random
from collections import Counter

import pyarrow as pa

from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.network.batches.sealed_batch import read_batch
from headrace.network.errors import NetworkError

ROWS = 50
FLIPS_PER_BATCH = 200
UNDECLARED = BatchType(Types.PICKLED_BYTE_ARRAY())


def batches() -> dict[str, pa.RecordBatch]:
    """Batches of all layouts that Arrow has: fixed, with nulls, of varying length, nested."""
    texts = pa.array(["hello", "wörld"] * (ROWS // 2))
    pairs = [[("a", 1), ("bc", None)], []] * (ROWS // 2)
    columns = {
        "numbers": [pa.array(range(ROWS)), pa.array([1.5, None] * (ROWS // 2))],
        "flags": [pa.array([True, None] * (ROWS // 2)), pa.array([b"abcd"] * ROWS, pa.binary(4))],
        "texts": [texts, texts.cast(pa.large_binary())],
        "plain texts": [
            pa.array(["hello", "", None, "world", "x"] * (ROWS // 5)),
            pa.array(["a", "bc"] * (ROWS // 2), pa.large_string()),
        ],
        "lists": [pa.array([["x", None], [], None, ["yz"], []] * (ROWS // 5))],
        "rows": [pa.array([{"a": "x", "b": [1]}, {"a": None, "b": None}] * (ROWS // 2))],
        "maps": [pa.array(pairs, pa.map_(pa.string(), pa.int64()))],
    }
    return {
        name: pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])
        for name, arrays in columns.items()
    }


def flip(message: bytes, bit: int) -> bytes:
    """Return `message` with one bit turned over."""
    flipped = bytearray(message)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def outcome(arrow: pa.RecordBatch, message: bytes) -> str:
    """Read all rows of a message, as an operator would."""
    try:
        read = read_batch(message, arrow.schema, ROWS, "peer")
    except NetworkError as error:
        return type(error).__name__
    return "same rows" if read.to_pylist() == arrow.to_pylist() else "other rows"


def outcome_of_pickles(arrow: pa.RecordBatch, message: bytes) -> str:
    """The same for values of no declared type: what a spoilt pickle raises is blamed on the operator that reads it."""
    try:
        read = read_batch(message, arrow.schema, ROWS, "peer")
    except NetworkError as error:
        return type(error).__name__
    try:
        RecordBatch.of_columns(UNDECLARED, read).rows()
    except Exception:
        return "unreadable pickle"
    return "read as pickles"


def main() -> None:
    """Flip bits all over each batch."""
    chance = random.Random(11)
    outcomes: Counter[str] = Counter()
    for arrow in batches().values():
        message = arrow.serialize().to_pybytes()
        for _ in range(FLIPS_PER_BATCH):
            outcomes[outcome(arrow, flip(message, chance.randrange(len(message) * 8)))] += 1
    values = RecordBatch.of_rows(UNDECLARED, [("a", index) for index in range(ROWS)])
    message = values.columns().serialize().to_pybytes()
    for _ in range(FLIPS_PER_BATCH):
        spoilt = flip(message, chance.randrange(len(message) * 8))
        outcomes[outcome_of_pickles(values.columns(), spoilt)] += 1
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
