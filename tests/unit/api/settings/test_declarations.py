"""Settings that a program declares: which are kept, which take effect, and which are refused."""

from typing import Any

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.api.settings.slot_sharing_group import SlotSharingGroup
from headrace.connectors.datagen.source import NumberSequenceSource
from headrace.core.config import declared_options
from headrace.core.errors import ConfigurationError, ProgramError
from headrace.core.resource_profile import ResourceProfile
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.datastream import CheckpointingMode, MemorySize
from headrace.datastream.formats.json import JsonRowSerializationSchema
from headrace.functions.serialization import RowFieldExtractorSchema
from headrace.graph.pipeline_options import CACHED_FILES, PYTHON_WITHOUT_EFFECT
from headrace.table import DataTypes
from tools.pages.configuration import import_declarations


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


def test_groups_put_their_operators_into_slots_of_their_size(
    env: StreamExecutionEnvironment,
) -> None:
    group, registered = group_of("models"), group_of("registered")
    env.register_slot_sharing_group(registered).register_slot_sharing_group(group_of("unused"))
    numbers = env.from_collection([1]).map(lambda n: n).slot_sharing_group("registered")
    numbers.map(lambda n: n).slot_sharing_group(group).print()
    graph = env.get_stream_graph()
    assert {node.slot_sharing_group for node in graph.nodes} == {
        "default",
        "registered",
        "models",
    }
    profile = ResourceProfile(0.5, 10 << 20, external_resources=(("gpu", 2),))
    assert graph.slot_resources == {"registered": profile, "models": profile}


def test_a_group_of_two_sizes_is_refused(env: StreamExecutionEnvironment) -> None:
    larger = SlotSharingGroup.builder("a").set_cpu_cores(2).set_task_heap_memory_mb(10).build()
    numbers = env.from_collection([1]).map(lambda n: n).slot_sharing_group(group_of("a"))
    numbers.map(lambda n: n).slot_sharing_group(larger).print()
    with pytest.raises(ProgramError, match=r"the slot sharing group 'a' has two sizes: 0\.5 core"):
        env.get_stream_graph()


def test_a_slot_takes_no_part_of_an_external_resource() -> None:
    with pytest.raises(ValueError, match=r"a whole number of 'gpu', not 0\.5"):
        SlotSharingGroup.builder("a").set_external_resource("gpu", 0.5)


def test_setters_of_features_that_are_not_there_accept_only_the_default(
    env: StreamExecutionEnvironment,
) -> None:
    config, checkpoints = env.get_config(), env.get_checkpoint_config()
    assert env.is_changelog_state_backend_enabled() is None
    assert env.enable_changelog_state_backend(False) is env
    assert env.is_changelog_state_backend_enabled() is False
    with pytest.raises(ConfigurationError, match=r"use state\.backend\.type rocksdb with"):
        env.enable_changelog_state_backend(True)
    assert env.is_changelog_state_backend_enabled() is False
    with pytest.raises(ConfigurationError, match=r"use task\.cancellation\.timeout"):
        config.set_task_cancellation_interval(5)
    with pytest.raises(
        ConfigurationError, match=r"use execution\.checkpointing\.unaligned\.enabled"
    ):
        checkpoints.set_force_unaligned_checkpoints()
    assert not checkpoints.set_force_unaligned_checkpoints(False).is_force_unaligned_checkpoints()
    assert config.set_use_snapshot_compression(True).is_use_snapshot_compression()
    with pytest.raises(ProgramError, match="state is always written compressed"):
        config.set_use_snapshot_compression(False)


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("execution.checkpointing.file-merging.enabled", "data-inline-threshold"),
        ("execution.checkpointing.region.enabled", "tolerable-failed-checkpoints"),
        ("execution.checkpointing.unaligned.during-recovery.enabled", "remove the option"),
        ("state.backend.changelog.enabled", "execution.checkpointing.incremental"),
        ("python.profile.enabled", "flame graph"),
    ],
)
def test_settings_that_ask_for_a_feature_that_is_not_there_say_what_to_use(
    env: StreamExecutionEnvironment, key: str, instead: str
) -> None:
    env.configure({key: "false"})
    with pytest.raises(ConfigurationError, match=instead):
        env.configure({key: "true"})


def test_only_options_that_tune_flinks_python_processes_are_taken_without_effect() -> None:
    import_declarations()
    unobeyed = {option.key for option in declared_options() if option.unobeyed}
    own = {key for key in unobeyed if not key.startswith("test.")}
    assert own == {option.key for option in PYTHON_WITHOUT_EFFECT}
    assert all(key.startswith("python.") for key in own)


def test_getters_give_back_what_flinks_do(env: StreamExecutionEnvironment) -> None:
    config, checkpoints = env.get_config(), env.get_checkpoint_config()
    assert checkpoints.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    env.enable_checkpointing(1000)
    assert checkpoints.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    assert config.get_task_cancellation_interval() == 30_000
    with pytest.raises(ProgramError, match="pickled with the objects they refer to"):
        config.disable_closure_cleaner()


def test_cached_files_are_kept_by_name(env: StreamExecutionEnvironment) -> None:
    env.register_cached_file("shop/a", "first")
    env.register_cached_file("shop/a", "first")
    env.register_cached_file("hdfs://host:1/b", "second", executable=True)
    with pytest.raises(ValueError, match="'first' is 'shop/a' already, not 'shop/c'"):
        env.register_cached_file("shop/c", "first")
    kept = (
        "name:first,path:shop/a,executable:false;name:second,path:hdfs://host:1/b,executable:true"
    )
    settings = env._settings  # pyright: ignore[reportPrivateUsage]
    assert settings.get(CACHED_FILES) == kept


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
    with pytest.raises(TypeError, match="field 1 of a record holds 'v', but must hold bytes"):
        schema.serialize(Row(b"k", "v"))
    with pytest.raises(TypeError, match="has no field 1"):
        schema.serialize(Row(b"k"))
    with pytest.raises(ValueError, match="a field index must be 0 or more, not -1"):
        RowFieldExtractorSchema(-1)


def test_data_types_are_the_types_of_streams() -> None:
    row = DataTypes.ROW(
        [DataTypes.FIELD("id", DataTypes.INT()), ("tags", DataTypes.ARRAY(DataTypes.STRING()))]
    )
    assert row == Types.ROW_NAMED(["id", "tags"], [Types.INT(), Types.LIST(Types.STRING())])
    assert DataTypes.ROW([DataTypes.BIGINT()]) == Types.ROW([Types.LONG()])
    other: Any = DataTypes
    with pytest.raises(ProgramError, match=r"DataTypes\.MULTISET is not supported: .*ARRAY"):
        other.MULTISET()


def test_builders_are_found_inside_their_classes_too() -> None:
    row = Types.ROW_NAMED(["n"], [Types.INT()])
    assert (
        JsonRowSerializationSchema.Builder().with_type_info(row).build().serialize(Row(1))
        == b'{"n":1}'
    )


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [
        ("python.metric.enabled", "false", "always may have metrics"),
        ("python.systemenv.enabled", "false", "unset there"),
        ("python.pythonpath", "lib", "python.files"),
    ],
)
def test_settings_of_flinks_python_processes_that_would_change_a_program_are_refused(
    env: StreamExecutionEnvironment, key: str, value: str, instead: str
) -> None:
    with pytest.raises(ConfigurationError, match=instead):
        env.configure({key: value})
