"""Configuration and ConfigOptions as PyFlink has them."""

from copy import deepcopy

import pytest

from headrace.core.configuration import ConfigOptions, Configuration
from headrace.core.errors import ConfigurationError


def typed() -> Configuration:
    return (
        Configuration()
        .set_string("k1", "v1")
        .set_integer("k2", 1)
        .set_float("k3", 1.2)
        .set_boolean("k4", True)
        .set_bytearray("k5", bytearray(b"\x01\x02"))
    )


def test_values_are_read_back_with_their_types() -> None:
    config = typed()
    assert config.get_string("k1", "") == "v1"
    assert config.get_integer("k2", 0) == 1
    assert config.get_float("k3", 0.0) == 1.2
    assert config.get_boolean("k4", False) is True
    assert config.get_bytearray("k5", bytearray()) == bytearray(b"\x01\x02")


def test_unknown_keys_give_the_default() -> None:
    config = Configuration()
    assert config.get_string("x", "d") == "d"
    assert config.get_integer("x", 7) == 7
    assert config.get_boolean("x", True) is True


def test_strings_are_converted_by_typed_getters() -> None:
    config = Configuration.from_dict({"a": "5", "b": "true", "c": "x"})
    assert config.get_integer("a", 0) == 5
    assert config.get_boolean("b", False) is True
    assert typed().get_string("k4", "") == "true"
    with pytest.raises(ConfigurationError, match="'c'"):
        config.get_integer("c", 0)
    config.set_float("fraction", 1.5)
    with pytest.raises(
        ConfigurationError, match=r"'fraction' has the value 1\.5: this is not of type int"
    ):
        config.get_integer("fraction", 0)


def test_dicts_of_strings_and_of_typed_values() -> None:
    target: dict[str, object] = {}
    config = typed()
    config.remove_config("k5")
    config.add_all_to_dict(target)
    assert target == {"k1": "v1", "k2": 1, "k3": 1.2, "k4": True}
    assert config.to_dict() == {"k1": "v1", "k2": "1", "k3": "1.2", "k4": "true"}


def test_all_of_another_can_be_added_with_a_prefix() -> None:
    config = Configuration().add_all(Configuration().set_integer("a", 1), "p.")
    assert config.key_set() == {"p.a"}


def test_keys_can_be_removed_once() -> None:
    config = Configuration().set_boolean("a", False)
    assert config.contains_key("a")
    assert config.remove_config("a") is True
    assert config.remove_config("a") is False


def test_equality_hash_text_and_copies_go_by_contents() -> None:
    one = Configuration().set_string("k1", "v1").set_integer("k2", 1)
    other = Configuration(one)
    assert str(one) == "{k1=v1, k2=1}"
    assert one == other == deepcopy(one) and hash(one) == hash(other)
    other.set_integer("k2", 2)
    assert one != other and one.get_integer("k2", 0) == 1


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (None, []),
        ("", []),
        ("[]", []),
        ("[a, b]", ["a", "b"]),
        ("['a, b', \"c\"]", ["a, b", "c"]),
        ("- a\n- b", ["a", "b"]),
        ("a;b", ["a", "b"]),
        ("single", ["single"]),
    ],
)
def test_lists_in_all_their_notations(text: str | None, items: list[str]) -> None:
    assert Configuration.parse_list_value(text) == items


def test_options_are_declared_by_type_and_default() -> None:
    option = ConfigOptions.key("x").int_type().default_value(5)
    assert (option.key, option.value_type, option.default) == ("x", int, 5)
    assert ConfigOptions.key("x").string_type().no_default_value().default is None
