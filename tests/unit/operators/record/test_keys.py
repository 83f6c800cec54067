"""key_by and its inverse: keys by selector and by column, types, hashes, and keys that cannot be."""

from typing import Any

import pytest

from headrace.core.errors import UserCodeError
from headrace.core.key_hash import hash_keys
from headrace.core.types.rows import Row
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.record import KeySelector
from headrace.functions.specs.operator_specs import KeyBySpec, KeyedValuesSpec
from headrace.testing.operator_harness import (
    PICKLED,
    OperatorHarness,
    Rows,
)
from headrace.testing.operator_ways import run_all_ways

ROW = Types.ROW_NAMED(["origin", "delay"], [Types.STRING(), Types.INT()])
FLIGHTS = [Row(origin="JFK", delay=3), Row(origin="EWR", delay=5), Row(origin="JFK", delay=-1)]


def _key_by(selector: Any, columns: tuple[str, ...], key_type: TypeInformation) -> OperatorHarness:
    return OperatorHarness(
        KeyBySpec(selector, columns, key_type),
        input_types=[ROW],
        output_type=ROW,
        output_key_type=key_type,
    )


class _Origin(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value.origin


@pytest.mark.parametrize(
    ("selector", "columns", "key_type"),
    [
        (lambda row: row.origin, (), PICKLED),
        (_Origin(), (), Types.STRING()),
        (None, ("origin",), Types.STRING()),
        (None, ("origin",), PICKLED),
    ],
)
def test_keys_and_hashes_are_the_same_whichever_way_they_are_named(
    selector: Any, columns: tuple[str, ...], key_type: TypeInformation
) -> None:
    harness = run_all_ways(
        lambda: _key_by(selector, columns, key_type), [Rows(FLIGHTS, [1, 2, 3])], finishes=False
    )
    assert harness.output.timed_rows == list(zip(FLIGHTS, [1, 2, 3], strict=True))
    (batch,) = harness.output.batches
    assert list(batch.keys()) == ["JFK", "EWR", "JFK"]
    assert batch.key_hashes is not None
    assert batch.key_hashes.tolist() == hash_keys(["JFK", "EWR", "JFK"]).tolist()
    assert batch.batch_type.key_type == key_type


def test_several_columns_make_a_row_of_keys() -> None:
    harness = _key_by(
        None,
        ("delay", "origin"),
        Types.ROW_NAMED(["delay", "origin"], [Types.INT(), Types.STRING()]),
    )
    harness.perform(Rows(FLIGHTS))
    (batch,) = harness.output.batches
    assert batch.keys()[0] == Row(delay=3, origin="JFK")
    assert batch.key_hashes is not None
    assert batch.key_hashes[0] == hash_keys([(3, "JFK")])[0]


def test_keying_again_replaces_the_key_and_keeps_the_value() -> None:
    harness = OperatorHarness(
        KeyBySpec(lambda value: value % 2, (), PICKLED),
        keys=[lambda value: "old"],
        output_key_type=PICKLED,
    )
    harness.perform(Rows([1, 2]))
    (batch,) = harness.output.batches
    assert list(batch.keys()) == [1, 0]
    assert batch.rows() == [1, 2]


@pytest.mark.parametrize(
    ("selector", "columns", "rows", "text"),
    [
        (lambda row: None, (), FLIGHTS, r"the key from operator 'Key' is null"),
        (
            None,
            ("origin",),
            [Row(origin=None, delay=1)],
            r"column 'origin' \(operator 'Key'\) is null",
        ),
        (lambda row: [row.delay], (), FLIGHTS, r"not hashable"),
        (lambda row: row.nothing, (), FLIGHTS, r"AttributeError: nothing .*operator 'Key'"),
    ],
)
def test_an_impossible_key_is_explained(
    selector: Any, columns: tuple[str, ...], rows: list[Row], text: str
) -> None:
    key_type = Types.STRING() if columns else PICKLED
    harness = OperatorHarness(
        KeyBySpec(selector, columns, key_type),
        input_types=[ROW],
        output_type=ROW,
        operator_name="Key",
    )
    with pytest.raises(UserCodeError, match=text):
        harness.perform(Rows(rows))


def test_a_key_that_does_not_fit_its_type_is_named() -> None:
    harness = _key_by(lambda row: row.origin, (), Types.INT())
    with pytest.raises(UserCodeError, match=r"record 'JFK' does not fit its declared type Integer"):
        harness.perform(Rows(FLIGHTS))


def test_values_leave_a_keyed_stream_without_keys_or_in_pairs() -> None:
    keys = [lambda value: value[0]]
    values = [("a", 1), ("b", 2)]
    plain = run_all_ways(
        lambda: OperatorHarness(KeyedValuesSpec(), keys=keys), [Rows(values, [1, 2])]
    )
    assert plain.output.timed_rows == [(("a", 1), 1), (("b", 2), 2)]
    assert not plain.output.batches[0].is_keyed
    pairs = run_all_ways(
        lambda: OperatorHarness(
            KeyedValuesSpec(with_keys=True), keys=keys, output_type=Types.ROW([PICKLED, PICKLED])
        ),
        [Rows(values)],
    )
    assert pairs.output.rows == [Row(f0="a", f1=("a", 1)), Row(f0="b", f1=("b", 2))]
