"""Changes of a state's type: every allowed one is followed, every other refused with the field named."""

from typing import Any

import pyarrow as pa
import pytest

from headrace.core.types.rows import Row
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from headrace.state.evolution import (
    StateIncompatibleError,
    check_evolution,
    evolve,
    schema_of_text,
    schema_text,
)
from headrace.testing.operator_harness import snapshot
from tests.unit.state.new_states import states_of

INT, LONG, STRING = Types.INT(), Types.LONG(), Types.STRING()


def row(**types: TypeInformation) -> TypeInformation:
    return Types.ROW_NAMED(list(types), list(types.values()))


def _through(old: StateDescriptor, value: Any, new: StateDescriptor) -> Any:
    """Store a value under the old descriptor and read it under the new one."""
    states = states_of()
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(old, backend.key_scope)
    backend.set_current_key("k")
    state.update(value)
    restored = states_of(snapshot(states)).create_keyed_backend()
    again: Any = restored.get_state(new, restored.key_scope)
    restored.set_current_key("k")
    return again.value()


def _value(type_info: TypeInformation) -> ValueStateDescriptor:
    return ValueStateDescriptor("state", type_info)


FOLLOWED = [
    ("added", row(a=INT), row(a=INT, b=STRING), Row(a=1), Row(a=1, b=None)),
    ("dropped", row(a=INT, b=STRING), row(b=STRING), Row(a=1, b="x"), Row(b="x")),
    ("moved", row(a=INT, b=STRING), row(b=STRING, a=INT), Row(a=1, b="x"), Row(b="x", a=1)),
    ("widened", row(a=INT), row(a=LONG), Row(a=1), Row(a=1)),
    ("plain value widened", Types.FLOAT(), Types.DOUBLE(), 0.5, 0.5),
    (
        "inside of a row",
        row(a=row(b=INT)),
        row(a=row(b=LONG, c=INT)),
        Row(a=Row(b=1)),
        Row(a=Row(b=1, c=None)),
    ),
    (
        "in a list",
        Types.LIST(row(a=INT)),
        Types.LIST(row(a=LONG, b=INT)),
        [Row(a=1), Row(a=2)],
        [Row(a=1, b=None), Row(a=2, b=None)],
    ),
    (
        "in the values of a map",
        Types.MAP(STRING, INT),
        Types.MAP(STRING, LONG),
        {"x": 1, "y": 2},
        {"x": 1, "y": 2},
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "value", "wanted"),
    [one[1:] for one in FOLLOWED],
    ids=[one[0] for one in FOLLOWED],
)
def test_values_follow_an_allowed_change(
    old: TypeInformation, new: TypeInformation, value: Any, wanted: Any
) -> None:
    assert _through(_value(old), value, _value(new)) == wanted


REFUSED = [
    ("narrowed", row(a=LONG), row(a=INT), "field 'a' was int64 and is int32"),
    ("another kind", row(a=INT), row(a=STRING), "field 'a' was int32 and is string"),
    ("inside of a row", row(a=row(b=LONG)), row(a=row(b=STRING)), r"field 'a\.b' was int64"),
    ("a row from a number", INT, row(a=INT), "the value was int32"),
    ("undeclared", INT, Types.PICKLED_BYTE_ARRAY(), "'value' was declared and is undeclared now"),
    ("keys of a map", Types.MAP(INT, INT), Types.MAP(LONG, INT), "keys of a map were int32"),
]


@pytest.mark.parametrize(
    ("old", "new", "message"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED]
)
def test_any_other_change_is_refused_with_the_field_named(
    old: TypeInformation, new: TypeInformation, message: str
) -> None:
    value = Row(a=Row(b=1)) if "b" in str(old) else Row(a=1)
    if old is INT:
        value = 1
    elif "Map" in str(old):
        value = {1: 1}
    with pytest.raises(StateIncompatibleError, match=message):
        _through(_value(old), value, _value(new))


def test_a_declared_rename_keeps_the_values() -> None:
    new = _value(row(count=LONG, name=STRING))
    new.evolve_field("count", renamed_from="n")
    new.evolve_field("name", default="nobody")
    assert _through(_value(row(n=INT)), Row(n=3), new) == Row(count=3, name="nobody")


def test_a_rename_of_what_was_not_stored_is_refused() -> None:
    new = _value(row(count=INT))
    new.evolve_field("count", renamed_from="m")
    with pytest.raises(StateIncompatibleError, match="'count' is declared to have been 'm'"):
        _through(_value(row(n=INT)), Row(n=3), new)


def test_elements_and_map_values_evolve_and_map_keys_do_not() -> None:
    states = states_of()
    backend = states.create_keyed_backend()
    numbers: Any = backend.get_state(ListStateDescriptor("list", INT), backend.key_scope)
    by_name: Any = backend.get_state(MapStateDescriptor("map", INT, INT), backend.key_scope)
    backend.set_current_key("k")
    numbers.add_all([1, 2])
    by_name.put(1, 2)
    restored = states_of(snapshot(states)).create_keyed_backend()
    again: Any = restored.get_state(ListStateDescriptor("list", LONG), restored.key_scope)
    restored.set_current_key("k")
    assert list(again.get()) == [1, 2]
    with pytest.raises(StateIncompatibleError, match="'map_key' was int32 and is int64 now"):
        restored.get_state(MapStateDescriptor("map", LONG, INT), restored.key_scope)


def test_keys_do_not_evolve() -> None:
    states = states_of(key_type=INT)
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(_value(INT), backend.key_scope)
    backend.set_current_key(1)
    state.update(1)
    restored = states_of(snapshot(states), key_type=LONG).create_keyed_backend()
    with pytest.raises(StateIncompatibleError, match="'key' was int32 and is int64 now"):
        restored.get_state(_value(INT), restored.key_scope)


def test_null_structs_lists_and_maps_stay_null() -> None:
    old = pa.array([{"a": [1]}, None, {"a": None}], type=pa.struct([("a", pa.list_(pa.int32()))]))
    new = pa.struct([("a", pa.list_(pa.int64())), ("b", pa.string())])
    assert evolve(old, new).to_pylist() == [{"a": [1], "b": None}, None, {"a": None, "b": None}]
    maps = pa.array([[("x", 1)], None, []], type=pa.map_(pa.string(), pa.int32()))
    wider = evolve(maps.slice(0, 3), pa.map_(pa.string(), pa.int64()))
    assert wider.to_pylist() == [[("x", 1)], None, []]


def test_a_schema_survives_its_text() -> None:
    schema = pa.schema(
        [pa.field("key", pa.string()), pa.field("value", pa.struct([("a", pa.int8())]))]
    )
    assert schema_of_text(schema_text(schema)) == schema
    assert check_evolution(schema, schema) == []
