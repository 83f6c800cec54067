"""Row, RowKind: fields by position and name, kinds, equality, pickling."""

import pickle

import pytest

from headrace.core.types.rows import Row, RowKind


def test_fields_are_read_by_position_slice_name_and_attribute() -> None:
    row = Row(a=1, b="x")
    assert (row[0], row["b"], row.a, row[0:2]) == (1, "x", 1, (1, "x"))
    assert list(row) == [1, "x"] and len(row) == 2


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no field 'c'"):
        Row(a=1)["c"]
    with pytest.raises(AttributeError):
        Row(1)["c"]
    with pytest.raises(AttributeError):
        _ = Row(a=1).c


def test_position_and_name_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="not both"):
        Row(1, a=2)


def test_a_row_of_names_makes_rows() -> None:
    person = Row("name", "age")
    assert person("Ada", 36) == Row(name="Ada", age=36)
    with pytest.raises(TypeError):
        person(1, 2, 3)


def test_rows_print_as_in_pyflink() -> None:
    assert repr(Row(1, "a")) == "<Row(1, 'a')>"
    assert repr(Row(a=1, b="x")) == "Row(a=1, b='x')"


def test_membership_is_of_names_or_else_of_values() -> None:
    assert "a" in Row(a=1) and 1 not in Row(a=1)
    assert 1 in Row(1, 2) and 3 not in Row(1, 2)


def test_equality_is_by_names_values_and_kind() -> None:
    assert Row(a=1) == Row(a=1)
    assert Row(a=1) != Row(b=1)
    assert Row(a=1) != Row(1)
    assert Row.of_kind(RowKind.DELETE, 1) != Row(1)
    assert Row(1) != (1,)
    assert hash(Row(a=1)) == hash(Row(1))


def test_rows_have_no_order() -> None:
    with pytest.raises(TypeError):
        _ = Row(1) < Row(2)  # type: ignore[operator]


def test_kinds_print_as_signs() -> None:
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]


def test_a_pickled_row_keeps_names_and_kind() -> None:
    row = Row.of_kind(RowKind.UPDATE_AFTER, a=1, b=[2])
    copy = pickle.loads(pickle.dumps(row, 5))
    assert copy == row and copy.get_row_kind() is RowKind.UPDATE_AFTER


def test_as_dict_goes_into_inner_rows_when_asked() -> None:
    row = Row(a=Row(b=1), c=[Row(d=2)])
    assert row.as_dict() == {"a": Row(b=1), "c": [Row(d=2)]}
    assert row.as_dict(recursive=True) == {"a": {"b": 1}, "c": [{"d": 2}]}
    with pytest.raises(TypeError):
        Row(1).as_dict()


def test_names_can_be_given_later_and_fields_picked_by_them() -> None:
    row = Row(1, 2)
    row.set_field_names(["a", "b"])
    assert row == Row(a=1, b=2)
    assert row.get_fields_by_names(["b", "a"]) == [2, 1]
    with pytest.raises(ValueError, match="no field"):
        row.get_fields_by_names(["c"])


def test_fields_can_be_assigned() -> None:
    row = Row(a=1, b=2)
    row["a"] = 5
    row[1] = 6
    assert row == Row(a=5, b=6)
