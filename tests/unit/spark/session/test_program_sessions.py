"""Sessions that a program makes itself: who wins, and what cannot be obeyed is refused by name."""

import inspect

import pytest
from pyspark import SparkConf
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from headrace.spark.session import program_sessions as module
from headrace.spark.session.checklist import HOSTING_SETTINGS
from headrace.spark.session.program_sessions import (
    SessionSettings,
    UnobeyedSettingError,
    asked_of_session,
    program_sessions,
    refuse_unobeyed,
    settings_of_program_sessions,
)


def test_the_command_lines_master_and_application_name_are_asked_of_a_session_by_sparks_names() -> (
    None
):
    asked = asked_of_session(
        {
            "headrace.spark.master": "local[3]",
            "headrace.spark.application-name": "mine",
            "spark.x": "1",
            "parallelism.default": "2",
        }
    )

    assert asked == {"spark.master": "local[3]", "spark.app.name": "mine", "spark.x": "1"}


def test_what_the_program_said_otherwise_is_replaced_and_what_it_said_alike_is_not() -> None:
    settings = SessionSettings({"spark.master": "local[3]", "spark.x": "1"}, {})

    assert settings.replaced({"spark.master": "local[2]", "spark.x": "1", "spark.y": "2"}) == {
        "spark.master": "local[2]"
    }


@pytest.mark.parametrize(
    ("known", "chosen", "master"),
    [
        ({"spark.master": "local[*]"}, {}, "local[6]"),
        ({"spark.master": "local[*]"}, {"spark.master": "local[*]"}, None),
        ({"spark.master": "spark://of-spark-defaults:7077"}, {}, None),
    ],
)
def test_a_default_stands_back_behind_all_but_what_spark_submit_sets_by_itself(
    known: dict[str, str], chosen: dict[str, str], master: str | None
) -> None:
    settings = settings_of_program_sessions({"headrace.spark.slots": "2"}, cpu_count=8)

    missing = settings.missing({**known, "spark.locality.wait": "3s"}, chosen)

    assert missing.get("spark.master") == master
    assert "spark.locality.wait" not in missing
    assert missing["spark.speculation"] == HOSTING_SETTINGS["spark.speculation"]


def test_a_setting_that_the_session_was_not_made_with_is_refused_by_name() -> None:
    asked = {"spark.jars": "/a.jar", "spark.executor.memory": "2g"}
    given = {"spark.jars": "/a.jar"}

    with pytest.raises(
        UnobeyedSettingError, match=r"spark\.executor\.memory=2g .* has 1g: "
    ) as info:
        refuse_unobeyed(
            asked, given, {"spark.jars": "file:///a.jar", "spark.executor.memory": "1g"}
        )

    assert info.value.key == "spark.executor.memory"
    with pytest.raises(UnobeyedSettingError, match="has none"):
        refuse_unobeyed(asked, given, {})


def test_contexts_and_builders_of_the_block_get_what_was_asked_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[dict[str, str]] = []
    opened: list[dict[str, str]] = []
    signature = inspect.signature(SparkContext.__init__)

    def make_context(*positional: object, **named: object) -> None:
        arguments = signature.bind(*positional, **named).arguments
        conf = arguments["conf"]
        assert isinstance(conf, SparkConf)
        made.append({**dict(conf.getAll()), "argument": str(arguments.get("master"))})

    make_context.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    monkeypatch.setattr(SparkContext, "__init__", make_context)
    monkeypatch.setattr(
        SparkSession.Builder,
        "getOrCreate",
        lambda builder: opened.append(dict(builder._options)),
    )
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda conf: None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(module, "ensure_java", lambda: None)
    asked = {"spark.master": "local[3]", "spark.sql.shuffle.partitions": "7"}

    with program_sessions(SessionSettings(asked, {"spark.d": "default", "spark.said": "default"})):
        SparkContext("local[2]", "mine", conf=SparkConf().set("spark.said", "yes"))
        SparkSession.builder.config("spark.sql.shuffle.partitions", 5).getOrCreate()
    SparkContext("local[2]", conf=SparkConf())

    assert made == [
        {
            **asked,
            "spark.said": "yes",
            "spark.app.name": "mine",
            "spark.d": "default",
            "argument": "None",
        },
        {"argument": "local[2]"},
    ]
    assert opened == [{"spark.sql.shuffle.partitions": "7"}]
    assert [record.getMessage() for record in caplog.records] == [
        "spark.master=local[3] from the command line replaces local[2], which the program sets for its SparkSession",
        "spark.sql.shuffle.partitions=7 from the command line replaces 5, which the program sets for its SparkSession",
    ]


def test_a_builder_s_second_session_says_no_more_than_the_program_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[dict[str, str]] = []
    in_jvm = {"spark.ui.showConsoleProgress": "true", "spark.master": "local[*]"}
    signature = inspect.signature(SparkContext.__init__)

    def make_context(*positional: object, **named: object) -> None:
        made.append(dict(signature.bind(*positional, **named).arguments["conf"].getAll()))

    make_context.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]

    class ConfOfJvm:
        """A SparkConf beside a JVM that runs."""

        def __init__(self, loadDefaults: bool = True) -> None:
            self.values = dict(in_jvm) if loadDefaults else {}

        def set(self, key: str, value: str) -> None:
            self.values[key] = value

        def getAll(self) -> list[tuple[str, str]]:
            return list(self.values.items())

    def get_or_create(builder: SparkSession.Builder) -> None:
        conf = ConfOfJvm()
        for key, value in builder._options.items():
            conf.set(key, value)
        SparkContext(conf=conf)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(SparkContext, "__init__", make_context)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", get_or_create)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda conf: None)
    monkeypatch.setattr(SparkContext, "_jvm", object())
    monkeypatch.setattr(module, "SparkConf", ConfOfJvm)
    monkeypatch.setattr(module, "ensure_java", lambda: None)
    monkeypatch.setattr(module, "missing_secret", lambda conf, file: {})
    defaults = {"spark.ui.showConsoleProgress": "false", "spark.master": "local[6]"}

    with program_sessions(SessionSettings({}, defaults)):
        monkeypatch.setattr(SparkSession.Builder, "_options", {}, raising=False)
        SparkSession.builder.getOrCreate()
        SparkSession.builder.config("spark.master", "local[*]").getOrCreate()

    assert made == [defaults, {**defaults, "spark.master": "local[*]"}]
