"""Every public name of PyFlink's DataStream API is here, or says what to do instead; what is here stays."""

from importlib import import_module
from typing import Any

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.connectors.pyflink_refusals import MOVED_NAMES
from headrace.core.errors import HeadraceError, ProgramError
from headrace.core.pyflink_refusals import GoneType, JvmOnlyType
from tools.pages.pyflink_parity import FACTS, facts, gone_names

DIFFERENT = {
    "RestartStrategies.FailureRateRestartStrategyConfiguration.__init__",
    "RestartStrategies.FixedDelayRestartStrategyConfiguration.__init__",
    "StateTtlConfig.CleanupStrategies.IncrementalCleanupStrategy.__init__",
    "StateTtlConfig.CleanupStrategies.RocksdbCompactFilterCleanupStrategy.__init__",
    "StateTtlConfig.CleanupStrategies.__init__",
    "TypeInformation.__init__",
    "StreamExecutionEnvironment.execute_async",
    "ParquetColumnarRowInputFormat.__init__",  # a batch size of our own
}
"""What may be called otherwise than in PyFlink: what programs do not make themselves, and defaults of our own."""


def test_no_public_name_is_absent() -> None:
    assert [f"{one.module}.{one.name}" for one in facts() if one.state == "absent"] == []


def test_what_fits_pyflinks_arguments_and_defaults_fits_ours() -> None:
    assert {one.name for one in facts() if one.state in ("there", "kept") and one.note} <= DIFFERENT


def test_the_table_of_names_never_shrinks() -> None:
    found = list(facts())
    there = sum(one.state in ("there", "kept") for one in found)
    assert FACTS["version"].startswith("2.3")
    assert (there, len(found)) >= (1_000, 1_200), (there, len(found))


@pytest.mark.parametrize(("module", "name"), list(gone_names()))
def test_what_older_releases_had_is_refused_with_what_to_do_instead(module: str, name: str) -> None:
    class_name, _, member = name.partition(".")
    found = getattr(import_module(f"headrace.{module}"), class_name)
    if member.startswith("DEFAULT_"):
        assert getattr(found, member) is not None
        return
    with pytest.raises((ProgramError, TypeError), match=r": .{10,}") as raised:
        if isinstance(found, JvmOnlyType):
            uses_member: Any = getattr(found, member or "of")
            uses_member()
        else:
            getattr(found(), member)("anything")
    assert isinstance(raised.value, HeadraceError)


def test_classes_that_are_gone_name_their_members_when_these_are_looked_up() -> None:
    gone: Any = import_module("headrace.datastream").TimeCharacteristic
    assert isinstance(gone, GoneType)
    with pytest.raises(
        ProgramError, match=r"TimeCharacteristic\.EventTime belongs to Flink 1\.x and was removed"
    ):
        _ = gone.EventTime
    assert not hasattr(gone, "_private")


@pytest.mark.parametrize(
    "statement",
    [
        "from headrace.table import StreamTableEnvironment",
        "from headrace.table.expressions import col",
        "from headrace.table.udf import udf",
        "from headrace.table.window import Tumble",
        "from headrace.table.types import RowType",
        "import headrace.table; headrace.table.TableEnvironment",
    ],
)
def test_the_table_api_is_refused_in_a_sentence(statement: str) -> None:
    with pytest.raises(ProgramError, match=r"belongs to Flink's Table API and SQL, .*DataFrames"):
        exec(statement, {})


@pytest.mark.parametrize(
    "statement",
    [
        "from headrace.java_gateway import get_gateway",
        "import headrace.java_gateway; headrace.java_gateway.get_gateway()",
        "from headrace.util.java_utils import to_jarray",
        "from headrace.util.exceptions import JavaException",
        "from headrace.util.api_stability_decorators import PublicEvolving",
        "import headrace.util; headrace.util.java_utils_of_old",
    ],
)
def test_pyflinks_link_with_its_jvm_is_refused_in_a_sentence(statement: str) -> None:
    with pytest.raises(ProgramError, match=r"link with Flink's JVM, .*: remove it\."):
        exec(statement, {})


def test_an_input_format_is_refused_where_it_is_used() -> None:
    found = import_module("headrace.common.io").InputFormat
    with pytest.raises(ProgramError, match=r"^InputFormat stands for Java code.*FileSource"):
        found(object())


def test_connectors_that_moved_say_where_they_are_now() -> None:
    package = import_module("headrace.datastream.connectors")
    for name, module in MOVED_NAMES.items():
        with pytest.raises(
            ProgramError, match=rf"^{name} .*: import it from {package.__name__}\.{module}$"
        ):
            getattr(package, name)
        assert hasattr(import_module(f"{package.__name__}.{module}"), name)
    assert not hasattr(package, "Unheard")


def test_settings_of_1_x_name_the_option_that_took_their_place(
    env: StreamExecutionEnvironment,
) -> None:
    with pytest.raises(
        ProgramError, match=r"^set_state_backend belongs to Flink 1\.x.*state\.backend"
    ):
        env.set_state_backend(object())
    with pytest.raises(ProgramError, match=r"checkpointing\.dir"):
        env.get_checkpoint_config().set_checkpoint_storage_dir("kept")
    with pytest.raises(ProgramError, match=r"restart-strategy\.type"):
        env.get_config().set_restart_strategy(object())
