"""Key hashes: Flink's golden vectors, and agreement between columns and Python values."""

import datetime
import enum
import uuid
import zoneinfo
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import PureWindowsPath
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.key_groups import key_groups_of, mix_hashes, subtasks_of
from headrace.core.key_hash import InvalidKeyError, hash_array, hash_keys
from headrace.core.types.rows import Row

# key as an array, hash, mix, group of 128, subtask of 3 and of 5 (m=128), group of 4096
GOLDEN = [
    (pa.array([0], pa.int32()), 0, 593689054, 94, 2, 3, 2526),
    (pa.array([-1], pa.int64()), 0, 593689054, 94, 2, 3, 2526),
    (pa.array([""]), 0, 593689054, 94, 2, 3, 2526),
    (pa.array([0.0]), 0, 593689054, 94, 2, 3, 2526),
    (pa.array([1], pa.int32()), 1, 68075478, 86, 2, 3, 4054),
    (pa.array([1], pa.int64()), 1, 68075478, 86, 2, 3, 4054),
    (pa.array([4294967296], pa.int64()), 1, 68075478, 86, 2, 3, 4054),
    (pa.array([42], pa.int32()), 42, 1134849565, 29, 0, 1, 3613),
    (pa.array([-1], pa.int32()), -1, 1982413648, 80, 1, 3, 2896),
    (pa.array([2147483647], pa.int32()), 2147483647, 1653689534, 62, 1, 2, 3262),
    (pa.array([1700000000000], pa.int64()), -807048821, 1892790720, 64, 1, 2, 448),
    (pa.array(["a"]), 97, 1455541201, 81, 1, 3, 3025),
    (pa.array(["flink"]), 97520992, 1330823394, 98, 2, 3, 226),
    (pa.array(["user-1"]), -836031825, 1662039673, 121, 2, 4, 1657),
    (pa.array(["钥匙"]), 1200916, 1015864158, 94, 2, 3, 2910),
    (pa.array(["\U0001f600"]), 1772899, 1934073014, 54, 1, 2, 3254),
    (pa.array([True]), 1231, 1090530765, 77, 1, 3, 3533),
    (pa.array([False]), 1237, 1530821891, 3, 0, 0, 3331),
    (pa.array([1.5]), 1073217536, 1684538177, 65, 1, 2, 833),
]


@pytest.mark.parametrize(
    ("key", "hashed", "mixed", "group", "of_three", "of_five", "wide_group"), GOLDEN
)
def test_a_key_goes_where_flink_sends_it(
    key: pa.Array, hashed: int, mixed: int, group: int, of_three: int, of_five: int, wide_group: int
) -> None:
    hashes = hash_array(key)
    assert hashes.dtype == np.int32
    assert hashes.tolist() == [hashed]
    assert mix_hashes(hashes).tolist() == [mixed]
    assert key_groups_of(hashes, 128).tolist() == [group]
    assert subtasks_of(hashes, 3, 128).tolist() == [of_three]
    assert subtasks_of(hashes, 5, 128).tolist() == [of_five]
    assert key_groups_of(hashes, 4096).tolist() == [wide_group]


KEYS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.booleans(),
    st.floats(allow_nan=False),
)


@given(st.lists(KEYS, min_size=1, max_size=20))
def test_a_value_alone_and_among_others_has_one_hash(keys: list[Any]) -> None:
    together = hash_keys(keys)
    assert together.tolist() == [int(hash_keys([key])[0]) for key in keys]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=20))
def test_texts_are_hashed_as_java_does(texts: list[str]) -> None:
    def java_hash(text: str) -> int:
        h = 0
        units = np.frombuffer(text.encode("utf-16-le"), dtype="<u2")
        for unit in units.tolist():
            h = (31 * h + unit) & 0xFFFFFFFF
        return h - 2**32 if h >= 2**31 else h

    expected = [java_hash(text) for text in texts]
    assert hash_keys(texts).tolist() == expected
    assert hash_array(pa.array(texts, pa.large_string())).tolist() == expected
    assert hash_array(pa.array(["x", *texts, "y"]).slice(1, len(texts))).tolist() == expected
    assert hash_array(pa.array(texts).dictionary_encode()).tolist() == expected


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text("aé钥", max_size=4)), min_size=1)
)
def test_composite_keys_agree_between_columns_and_values(keys: list[tuple[int, str]]) -> None:
    struct = pa.StructArray.from_arrays(
        [pa.array([key[0] for key in keys], pa.int64()), pa.array([key[1] for key in keys])],
        names=["a", "b"],
    )
    expected = hash_array(struct).tolist()
    assert hash_keys(keys).tolist() == expected
    assert hash_keys([Row(*key) for key in keys]).tolist() == expected
    assert hash_keys([Row(a=key[0], b=key[1]) for key in keys]).tolist() == expected


@dataclass(frozen=True)
class _Point:
    x: int
    y: int


class _Colour(enum.Enum):
    RED = 1


class _Level(enum.IntEnum):
    LOW = 1


class _Word(enum.StrEnum):
    A = "a"


class _Named(NamedTuple):
    a: str
    b: Any


class _AnyCase(str):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


@dataclass(frozen=True)
class _FirstOnly:
    a: int
    b: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FirstOnly) and self.a == other.a


NOON = datetime.datetime(2020, 6, 1, 12)
UTC = datetime.UTC
PLUS_TWO = datetime.timezone(datetime.timedelta(hours=2))
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


class _Name:
    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Name) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_Point(1, 2), _Point(1, 2)),
        (_Colour.RED, _Colour.RED),
        (Decimal("1.0"), Decimal("1.00")),
        (datetime.date(2013, 1, 1), datetime.date(2013, 1, 1)),
        (datetime.datetime(2013, 1, 1, 5), datetime.datetime(2013, 1, 1, 5)),
        (frozenset(["a", "b"]), frozenset(["b", "a"])),
        (b"\xffx", b"\xffx"),
        (0.0, -0.0),
        (2**70, 2**70),
        ((1, None), (1, None)),
        (np.int64(7), 7),
        (2, 2.0),
        (2, Decimal("2.00")),
        (2, Fraction(4, 2)),
        (2, 2 + 0j),
        (1, True),
        (0, np.bool_(False)),
        (0.5, Decimal("0.5")),
        (0.5, Fraction(1, 2)),
        (0.5, np.float32(0.5)),
        (float(2**70), 2**70),
        (2**63, 9223372036854775808.0),
        (float("inf"), Decimal("Infinity")),
        (_Level.LOW, 1),
        (_Word.A, "a"),
        (("a", 2), ("a", 2.0)),
        (_Named("a", 2), ("a", 2.0)),
        (_Point(1, 2), _Point(1.0, True + 1)),  # pyright: ignore[reportArgumentType]
        (NOON.replace(tzinfo=UTC), NOON.replace(hour=14, tzinfo=PLUS_TWO)),
        (NOON.time().replace(tzinfo=UTC), NOON.time().replace(hour=14, tzinfo=PLUS_TWO)),
        (
            datetime.datetime(2020, 10, 25, 2, 30, tzinfo=BERLIN),
            datetime.datetime(2020, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
        ),
        (np.datetime64("2020-01-01", "D"), np.datetime64("2020-01-01T00", "h")),
        (np.timedelta64(1, "s"), datetime.timedelta(seconds=1)),
        (uuid.UUID(int=7), uuid.UUID(int=7, is_safe=uuid.SafeUUID.safe)),
        (PureWindowsPath("A/b"), PureWindowsPath("a/B")),
    ],
)
def test_equal_keys_have_equal_hashes(one: Any, other: Any) -> None:
    assert one == other
    assert hash_keys([one, "x"])[0] == hash_keys([other, "x"])[0]


NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(2**53), 2**53).map(float),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(np.float32),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
    st.complex_numbers(allow_nan=False),
)
FEW_NUMBERS = st.sampled_from(
    [cast(Any, kind)(value) for value in (0, 1, 2, -3)
     for kind in (int, float, Decimal, Fraction, complex, np.int64, np.float32)]
)  # fmt: skip
ZONES = st.integers(-23, 23).map(lambda hours: datetime.timezone(datetime.timedelta(hours=hours)))
INSTANTS = st.builds(
    lambda seconds, zone: datetime.datetime.fromtimestamp(seconds, zone),
    st.integers(0, 3),
    ZONES,
)
LEAVES = st.one_of(
    FEW_NUMBERS,
    NUMBERS,
    INSTANTS,
    st.text(max_size=2),
    st.sampled_from([_Level.LOW, _Word.A, True, False, -0.0, "a", b"a"]),
    st.datetimes(),
    st.timedeltas(),
)
WIDE = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner),
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=2),
        st.builds(_Point, inner, inner),
        st.builds(_Named, inner, inner),
    ),
    max_leaves=3,
)


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    # numpy's scalars refuse decimals, take tuples for arrays, and small ones warn of large floats.
    except (TypeError, ValueError, RuntimeWarning):
        return False


@given(st.lists(st.one_of(FEW_NUMBERS, INSTANTS, WIDE), min_size=2, max_size=12))
def test_keys_that_are_equal_to_python_have_one_hash(keys: list[Any]) -> None:
    together = hash_keys(keys).tolist()
    for key, hashed in zip(keys, together, strict=True):
        assert hash_keys([key]).tolist() == [hashed]
        for other, other_hashed in zip(keys, together, strict=True):
            assert hashed == other_hashed or not _are_equal(key, other), (key, other)


@given(st.lists(st.floats(allow_nan=False), min_size=1), st.lists(st.booleans(), min_size=1))
def test_many_of_one_class_are_hashed_as_the_numbers_they_equal(
    floats: list[float], truths: list[bool]
) -> None:
    assert hash_keys(floats).tolist() == hash_keys([*map(Decimal, floats)]).tolist()
    assert hash_keys(truths).tolist() == hash_keys([*map(int, truths)]).tolist()


def test_big_integers_are_hashed_as_java_does() -> None:
    # BigInteger("1180591620717411303424") and its negative
    assert hash_keys([2**70]).tolist() == [61504]
    assert hash_keys([-(2**70)]).tolist() == [-61504]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ([None], "null"),
        (["a", None], "null"),
        ([float("nan")], "NaN"),
        ([[1, 2]], "list, which is not hashable"),
        ([object()], "no __eq__"),
        ([Decimal("sNaN")], "NaN"),
        ([np.float32("nan")], "NaN"),
        ([np.datetime64("NaT")], "NaT"),
        ([_Name("a")], "whose own __eq__ .*tuple of the relevant fields"),
        ([_AnyCase("a")], "whose own __eq__"),
        ([_FirstOnly(1, 2)], "whose own __eq__"),
    ],
)
def test_what_cannot_be_a_key_is_named(keys: list[Any], text: str) -> None:
    with pytest.raises(InvalidKeyError, match=f"the key from operator 'Key' .*{text}"):
        hash_keys(keys, "operator 'Key'")


def test_a_null_in_a_key_column_names_the_column() -> None:
    with pytest.raises(InvalidKeyError, match="column 'origin' is null"):
        hash_array(pa.array(["JFK", None]), "column 'origin'")


def test_a_null_inside_a_composite_key_is_a_value() -> None:
    struct = pa.StructArray.from_arrays(
        [pa.array([1, None]), pa.array(["a", None])], names=["a", "b"]
    )
    assert hash_array(struct).tolist() == hash_keys([(1, "a"), (None, None)]).tolist()


def test_no_keys_have_no_hashes() -> None:
    assert hash_keys([]).shape == (0,)
    assert hash_array(pa.array([], pa.string())).shape == (0,)
