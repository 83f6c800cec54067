"""Options: parsing, defaults, old keys, and errors that name the key."""

from datetime import timedelta

import pytest

from headrace.core.config import (
    ConfigOption,
    Settings,
    SizeBytes,
    check_settings,
    check_values,
    declared_options,
    unobeyed_settings,
    withdraw_options,
)
from headrace.core.errors import ConfigurationError

INTERVAL = ConfigOption(
    "test.interval", timedelta, timedelta(seconds=1), "For this test.", ("test.old-interval",)
)
SIZE = ConfigOption("test.size", SizeBytes, SizeBytes(10), "For this test.")
IDLE = ConfigOption("test.idle", str, "", "For this test.", unobeyed="use test.flag")
MISSING = ConfigOption(
    "test.missing.enabled", bool, False, "For this test.", refused="use test.flag"
)
FLAG = ConfigOption("test.flag", bool, False, "For this test.")
COUNT = ConfigOption("test.count", int, -1, "For this test.")
SHARE = ConfigOption("test.share", float, 0.5, "For this test.")
PART = ConfigOption("test.part", float, 0.5, "For this test.", most=1.0)
IDLE_COUNT = ConfigOption("test.idle-count", int, 3, "For this test.", unobeyed="use test.count")
BOUNDED = ConfigOption(
    "test.pause", timedelta, timedelta(0), "For this test.", least=timedelta(milliseconds=-1)
)

WORD = ConfigOption(
    "test.word", str, "", "For this test.", choices=("one-thing", "other"), synonyms=("another",)
)
CAN_BE_OFF = ConfigOption(
    "test.period", timedelta, timedelta(0), "For this test.",
    least=timedelta(milliseconds=10), off=(timedelta(0),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250 ms", 250), ("10 s", 10_000), ("1 min", 60_000), ("12000", 12_000)],
)
def test_durations_are_read_with_their_units(text: str, milliseconds: int) -> None:
    settings = Settings({"test.interval": text})
    assert settings.get_option(INTERVAL) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("text", "size"), [("32kb", 32768), ("10 mb", 10485760), ("10485760b", 10485760)]
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert Settings({"test.size": text}).get_option(SIZE) == size


@pytest.mark.parametrize(
    ("raw", "milliseconds"),
    [({}, 1000), ({"test.interval": "2.5 ms"}, 2.5), ({"test.old-interval": "1 min"}, 60_000)],
)
def test_durations_are_read_in_milliseconds(raw: dict[str, str], milliseconds: float) -> None:
    assert Settings(raw).duration_ms(INTERVAL) == milliseconds


def test_an_option_that_is_not_set_has_its_default() -> None:
    assert Settings().get_option(INTERVAL) == timedelta(seconds=1)
    assert not Settings().is_set(INTERVAL)


def test_an_old_spelling_is_read_too() -> None:
    assert Settings({"test.old-interval": "5 s"}).get_option(INTERVAL) == timedelta(seconds=5)


def test_a_wrong_value_is_refused_with_its_key() -> None:
    with pytest.raises(ConfigurationError, match=r"'test\.flag' has the value 'maybe'"):
        Settings({"test.flag": "maybe"}).get_option(FLAG)
    with pytest.raises(ConfigurationError, match=r"test\.interval"):
        Settings({"test.interval": "soon"}).get_option(INTERVAL)


@pytest.mark.parametrize("key", ["test.interval", "test.size", "test.count"])
@pytest.mark.parametrize("value", ["9" * 5000, "9" * 5000 + " d"])
def test_a_number_without_end_is_refused_briefly(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=key) as refused:
        check_values({key: value})
    assert len(str(refused.value)) < 300


def test_a_value_below_the_least_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'test\.pause' has the value '-5': it must be at least -1 ms"
    ):
        check_settings({"test.pause": "-5"}, ())
    assert Settings({"test.pause": "-1"}).get_option(BOUNDED) == timedelta(milliseconds=-1)


@pytest.mark.parametrize(
    ("key", "value", "least"),
    [
        ("test.interval", "-5", "0 ms"),
        ("test.old-interval", "-1 s", "0 ms"),
        ("test.size", "-1b", "0 bytes"),
        ("test.count", "-2", "-1"),
        ("test.share", "-0.1", "0.0"),
        ("test.share", "nan", "0.0"),
    ],
)
def test_without_a_least_value_nothing_below_zero_is_taken_unless_it_is_the_default(
    key: str, value: str, least: str
) -> None:
    options = [INTERVAL, SIZE, COUNT, SHARE]
    (option,) = [one for one in options if key in (one.key, *one.deprecated_keys)]
    with pytest.raises(ConfigurationError, match=f"it must be at least {least}$"):
        Settings({key: value}).get_option(option)
    assert Settings({"test.count": "-1"}).get_option(COUNT) == -1
    assert Settings({"test.idle-count": "-7"}).get_option(IDLE_COUNT) == -7


@pytest.mark.parametrize("value", ["1.01", "inf", "1e300"])
def test_a_value_above_the_most_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'test\.part' has .*: it must be at most 1\.0$"):
        Settings({"test.part": value}).get_option(PART)
    assert Settings({"test.part": "1"}).get_option(PART) == 1.0


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("one-thing", "one-thing"),
        ("ONE_THING", "one-thing"),
        (" Other ", "other"),
        ("another", "another"),
        ("", ""),
    ],
)
def test_a_word_is_taken_however_it_is_spelt(text: str, word: str) -> None:
    check_settings({"test.word": text}, ())
    assert Settings({"test.word": text}).get_option(WORD) == word


def test_a_word_that_is_none_of_the_choices_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"'test\.word' has the value 'onething': it must be one of one-thing, other$",
    ):
        check_settings({"test.word": "onething"}, ())


def test_what_can_be_switched_off_takes_that_and_nothing_else_below_the_least() -> None:
    for text, milliseconds in (("0", 0), ("0 s", 0), ("10 ms", 10)):
        assert Settings({"test.period": text}).duration_ms(CAN_BE_OFF) == milliseconds
    for text in ("9 ms", "1 us", "-1 ms"):
        with pytest.raises(ConfigurationError, match=r"it must be at least 10 ms or 0 ms$"):
            check_settings({"test.period": text}, ())


def test_settings_that_nothing_obeys_are_told_with_what_to_do() -> None:
    settings = {"test.idle": "x", "test.flag": "true", "unknown": "y"}
    assert unobeyed_settings(settings) == ["setting 'test.idle' has no effect: use test.flag"]


def test_options_of_a_missing_feature_say_what_to_use_and_only_its_default_is_accepted() -> None:
    check_settings({"test.missing.enabled": "false"}, ())
    with pytest.raises(ConfigurationError, match=r"'true': use test\.flag$"):
        check_settings({"test.missing.enabled": "true"}, ())
    with pytest.raises(ConfigurationError, match=r"there is no such option; use test\.flag$"):
        check_settings({"test.missing.size": "1"}, ())
    with pytest.raises(ConfigurationError, match=r"there is no such option$"):
        check_settings({"test-missing-enabled": "true"}, ())


def test_a_key_that_was_withdrawn_is_told_with_what_to_do_instead() -> None:
    withdraw_options({"test.withdrawn": "leave it out"})
    with pytest.raises(ConfigurationError, match=r"there is no such option; leave it out$"):
        check_settings({"test.withdrawn": "1"}, ())


def test_declared_options_are_listed_once() -> None:
    keys = [option.key for option in declared_options()]
    assert "test.interval" in keys
    assert len(keys) == len(set(keys))


def test_unknown_keys_are_told_with_the_nearest_and_free_prefixes_pass() -> None:
    check_settings({"test.interval": "1 s", "spark.any": "x"}, ("spark.",))
    with pytest.raises(ConfigurationError, match=r"no such option; did you mean test\.interval"):
        check_settings({"test.intervall": "1 s"}, ("spark.",))
    with pytest.raises(
        ConfigurationError, match=r"'nothing\.like\.it'.*: there is no such option$"
    ):
        check_settings({"nothing.like.it": "1"}, ())
    with pytest.raises(ConfigurationError, match="'soon': this is not a duration"):
        check_settings({"test.interval": "soon"}, ())
