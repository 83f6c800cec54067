"""What is a plain declaration: kept, given back, obeyed where there is something to obey."""

import logging
from typing import Any

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.api.settings.slot_sharing_group import SlotSharingGroup
from headrace.connectors.number_sequence.source import NumberSequenceSource
from headrace.core.config import unobeyed_settings
from headrace.core.errors import ProgramError
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.datastream import CheckpointingMode, MemorySize
from headrace.datastream.formats.json import JsonRowSerializationSchema
from headrace.functions.serialization import RowFieldExtractorSchema
from headrace.table import DataTypes


def group_of(name: str) -> SlotSharingGroup:
    builder = SlotSharingGroup.builder(name).set_cpu_cores(0.5).set_task_heap_memory_mb(10)
    return builder.set_external_resource("gpu", 1).set_external_resource("gpu", 2).build()


def test_a_slot_sharing_group_gives_back_what_it_was_given() -> None:
    group = group_of("a")
    assert group == group_of("a") and hash(group) == hash(group_of("a")) and group != group_of("b")
    assert (group.get_name(), group.get_cpu_cores()) == ("a", 0.5)
    assert group.get_task_heap_memory() == MemorySize.of_mebi_bytes(10)
    assert group.get_managed_memory() is None and group.get_task_off_heap_memory() is None
    assert group.get_external_resources() == {"gpu": 2.0}


def test_cores_and_heap_memory_of_a_group_come_together() -> None:
    with pytest.raises(ValueError, match="'a' names resources, so it needs both"):
        SlotSharingGroup.builder("a").set_managed_memory_mb(5).build()


def test_groups_put_their_operators_into_slots_of_their_own_and_say_what_is_not_obeyed(
    env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    group = group_of("models of this test")
    env.register_slot_sharing_group(group)
    numbers = env.from_collection([1]).map(lambda n: n)
    numbers.map(lambda n: n).slot_sharing_group(group).print()
    groups = {node.slot_sharing_group for node in env.get_stream_graph().nodes}
    assert groups == {"default", group.get_name()}
    told = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert [one.getMessage().split(":")[0] for one in told] == [
        "the resources of the slot sharing group 'models of this test' are not obeyed"
    ]


def test_the_changelog_switch_is_kept_and_a_job_is_told_that_nothing_obeys_it(
    env: StreamExecutionEnvironment,
) -> None:
    assert env.is_changelog_state_backend_enabled() is None
    assert env.enable_changelog_state_backend(True) is env
    assert env.is_changelog_state_backend_enabled() is True
    settings = {"state.changelog.enabled": "true"}
    assert "state.changelog.enabled" in "".join(unobeyed_settings(settings))


def test_getters_give_back_what_flinks_do(env: StreamExecutionEnvironment) -> None:
    config, checkpoints = env.get_config(), env.get_checkpoint_config()
    assert checkpoints.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    env.enable_checkpointing(1000)
    assert checkpoints.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    assert config.is_closure_cleaner_enabled()
    assert not config.disable_closure_cleaner().is_closure_cleaner_enabled()
    assert config.enable_closure_cleaner().is_closure_cleaner_enabled()


def test_cached_files_are_kept_by_name(env: StreamExecutionEnvironment) -> None:
    env.register_cached_file("shop/a", "first")
    env.register_cached_file("shop/a", "first")
    env.register_cached_file("hdfs://host:1/b", "second", executable=True)
    with pytest.raises(ValueError, match="'first' is 'shop/a' already, not 'shop/c'"):
        env.register_cached_file("shop/c", "first")
    kept = (
        "name:first,path:shop/a,executable:false;name:second,path:hdfs://host:1/b,executable:true"
    )
    assert "functions in Python open files by their path" in "".join(
        unobeyed_settings({"pipeline.cached-files": kept})
    )


def test_create_input_reads_a_bounded_source_to_its_end(env: StreamExecutionEnvironment) -> None:
    numbers = env.create_input(NumberSequenceSource(1, 3))
    assert numbers.get_type() == Types.LONG()
    java: Any = object()
    with pytest.raises(ProgramError, match=r"create_input stands for Java .*FileSource"):
        env.create_input(java)


def test_a_field_of_a_row_becomes_a_message() -> None:
    schema = RowFieldExtractorSchema(1)
    assert schema.serialize(Row(b"k", b"v")) == b"v"
    assert schema.serialize((b"k", None)) == b""
    assert schema == RowFieldExtractorSchema(1) != RowFieldExtractorSchema(0)
    with pytest.raises(TypeError, match="field 1 of a record holds 'v' and must hold bytes"):
        schema.serialize(Row(b"k", "v"))
    with pytest.raises(TypeError, match="has no field 1"):
        schema.serialize(Row(b"k"))
    with pytest.raises(ValueError, match="a field index is 0 or more, not -1"):
        RowFieldExtractorSchema(-1)


def test_data_types_are_the_types_of_streams() -> None:
    row = DataTypes.ROW(
        [DataTypes.FIELD("id", DataTypes.INT()), ("tags", DataTypes.ARRAY(DataTypes.STRING()))]
    )
    assert row == Types.ROW_NAMED(["id", "tags"], [Types.INT(), Types.LIST(Types.STRING())])
    assert DataTypes.ROW([DataTypes.BIGINT()]) == Types.ROW([Types.LONG()])
    other: Any = DataTypes
    with pytest.raises(ProgramError, match=r"DataTypes\.MULTISET stands for nothing here: .*ARRAY"):
        other.MULTISET()


def test_builders_are_found_inside_their_classes_too() -> None:
    row = Types.ROW_NAMED(["n"], [Types.INT()])
    assert (
        JsonRowSerializationSchema.Builder().with_type_info(row).build().serialize(Row(1))
        == b'{"n":1}'
    )
