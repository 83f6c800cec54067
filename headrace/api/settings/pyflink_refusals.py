"""Methods and classes of PyFlink's settings that are not supported: using one raises ProgramError.

Some configure Java's serializers. Others are of PyFlink 1.x; Flink 2 replaced them by options, which the error names.
"""

import enum
from typing import Final

from headrace.core.pyflink_refusals import gone_class, gone_method, jvm_method

_NO_SERIALIZERS: Final = (
    "records are stored as Arrow columns or pickled: declare types, or remove the call"
)
_NO_CLEANER: Final = "Python functions are pickled with the objects they refer to: remove the call"


class InputDependencyConstraint(enum.Enum):
    """Condition for starting a vertex of a batch job; it is no longer used."""

    ANY = 0
    ALL = 1


class JvmExecutionSettings:
    """The part of ExecutionConfig that applies only to a JVM: every method raises ProgramError."""

    enable_force_kryo = jvm_method("enable_force_kryo", _NO_SERIALIZERS)
    disable_force_kryo = jvm_method("disable_force_kryo", _NO_SERIALIZERS)
    is_force_kryo_enabled = jvm_method("is_force_kryo_enabled", _NO_SERIALIZERS)
    enable_generic_types = jvm_method("enable_generic_types", _NO_SERIALIZERS)
    disable_generic_types = jvm_method("disable_generic_types", _NO_SERIALIZERS)
    has_generic_types_disabled = jvm_method("has_generic_types_disabled", _NO_SERIALIZERS)
    enable_force_avro = jvm_method("enable_force_avro", _NO_SERIALIZERS)
    disable_force_avro = jvm_method("disable_force_avro", _NO_SERIALIZERS)
    is_force_avro_enabled = jvm_method("is_force_avro_enabled", _NO_SERIALIZERS)
    enable_closure_cleaner = jvm_method("enable_closure_cleaner", _NO_CLEANER)
    disable_closure_cleaner = jvm_method("disable_closure_cleaner", _NO_CLEANER)
    is_closure_cleaner_enabled = jvm_method("is_closure_cleaner_enabled", _NO_CLEANER)
    get_default_kryo_serializer_classes = jvm_method(
        "get_default_kryo_serializer_classes", _NO_SERIALIZERS
    )
    get_registered_kryo_types = jvm_method("get_registered_kryo_types", _NO_SERIALIZERS)
    get_registered_pojo_types = jvm_method("get_registered_pojo_types", _NO_SERIALIZERS)


_BACKEND: Final = "set state.backend.type to hashmap or rocksdb in a Configuration, or with -D"
_STORAGE: Final = "set execution.checkpointing.dir in a Configuration, or with -D"
_RESTARTS: Final = "set restart-strategy.type in a Configuration, or with -D"
_TIME: Final = "remove it: watermark strategies define event time, and window assigners choose the kind of time"
_KRYO: Final = "remove it: records are Arrow columns or pickled, so declare types"
_CLEANUP: Final = (
    "use set_externalized_checkpoint_retention with an ExternalizedCheckpointRetention"
)
_MODE: Final = "remove it: execution.batch-shuffle-mode sets the exchanges of a bounded job"

TimeCharacteristic: Final = gone_class("TimeCharacteristic", _TIME)
ExternalizedCheckpointCleanup: Final = gone_class("ExternalizedCheckpointCleanup", _CLEANUP)
MemoryStateBackend: Final = gone_class("MemoryStateBackend", _BACKEND)
FsStateBackend: Final = gone_class("FsStateBackend", f"{_BACKEND}; {_STORAGE}")
RocksDBStateBackend: Final = gone_class("RocksDBStateBackend", f"{_BACKEND}; {_STORAGE}")
ExecutionMode: Final = gone_class("ExecutionMode", _MODE)


class GoneEnvironmentMethods:
    """Removed methods of StreamExecutionEnvironment: each raises ProgramError."""

    set_state_backend = gone_method("set_state_backend", _BACKEND)
    get_state_backend = gone_method("get_state_backend", _BACKEND)
    set_restart_strategy = gone_method("set_restart_strategy", _RESTARTS)
    get_restart_strategy = gone_method("get_restart_strategy", _RESTARTS)
    set_stream_time_characteristic = gone_method("set_stream_time_characteristic", _TIME)
    get_stream_time_characteristic = gone_method("get_stream_time_characteristic", _TIME)
    add_default_kryo_serializer = gone_method("add_default_kryo_serializer", _KRYO)
    register_type_with_kryo_serializer = gone_method("register_type_with_kryo_serializer", _KRYO)
    register_type = gone_method("register_type", _KRYO)
    read_text_file = gone_method(
        "read_text_file",
        "use from_source with FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).build()",
    )


class GoneExecutionSettings:
    """Removed methods of ExecutionConfig: each raises ProgramError."""

    add_default_kryo_serializer = gone_method("add_default_kryo_serializer", _KRYO)
    disable_auto_type_registration = gone_method("disable_auto_type_registration", _KRYO)
    is_auto_type_registration_disabled = gone_method("is_auto_type_registration_disabled", _KRYO)
    get_registered_types_with_kryo_serializer_classes = gone_method(
        "get_registered_types_with_kryo_serializer_classes", _KRYO
    )
    register_kryo_type = gone_method("register_kryo_type", _KRYO)
    register_pojo_type = gone_method("register_pojo_type", _KRYO)
    register_type_with_kryo_serializer = gone_method("register_type_with_kryo_serializer", _KRYO)
    get_default_input_dependency_constraint = gone_method(
        "get_default_input_dependency_constraint", _MODE
    )
    set_default_input_dependency_constraint = gone_method(
        "set_default_input_dependency_constraint", _MODE
    )
    get_execution_mode = gone_method("get_execution_mode", _MODE)
    set_execution_mode = gone_method("set_execution_mode", _MODE)
    get_restart_strategy = gone_method("get_restart_strategy", _RESTARTS)
    set_restart_strategy = gone_method("set_restart_strategy", _RESTARTS)


class GoneCheckpointSettings:
    """Removed methods of CheckpointConfig: each raises ProgramError."""

    enable_externalized_checkpoints = gone_method("enable_externalized_checkpoints", _CLEANUP)
    get_externalized_checkpoint_cleanup = gone_method(
        "get_externalized_checkpoint_cleanup", _CLEANUP
    )
    set_externalized_checkpoint_cleanup = gone_method(
        "set_externalized_checkpoint_cleanup", _CLEANUP
    )
    get_checkpoint_storage = gone_method("get_checkpoint_storage", _STORAGE)
    set_checkpoint_storage = gone_method("set_checkpoint_storage", _STORAGE)
    set_checkpoint_storage_dir = gone_method("set_checkpoint_storage_dir", _STORAGE)
