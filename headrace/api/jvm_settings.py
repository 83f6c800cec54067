"""Settings of PyFlink's for Java's serializers: importable, refused when used."""

import enum
from typing import Final, NoReturn

from headrace.core.jvm_only import no_jvm

_NO_SERIALIZERS: Final = (
    "records are Arrow columns or pickled; declare types, or leave the call out"
)


class InputDependencyConstraint(enum.Enum):
    """When a vertex of a batch job could start; nothing asks for it any more."""

    ANY = 0
    ALL = 1


class JvmExecutionSettings:
    """The part of ExecutionConfig that only a JVM could obey: every method raises ProgramError."""

    def enable_force_kryo(self) -> NoReturn:
        raise no_jvm("enable_force_kryo", _NO_SERIALIZERS)

    def disable_force_kryo(self) -> NoReturn:
        raise no_jvm("disable_force_kryo", _NO_SERIALIZERS)

    def is_force_kryo_enabled(self) -> NoReturn:
        raise no_jvm("is_force_kryo_enabled", _NO_SERIALIZERS)

    def enable_generic_types(self) -> NoReturn:
        raise no_jvm("enable_generic_types", _NO_SERIALIZERS)

    def disable_generic_types(self) -> NoReturn:
        raise no_jvm("disable_generic_types", _NO_SERIALIZERS)

    def has_generic_types_disabled(self) -> NoReturn:
        raise no_jvm("has_generic_types_disabled", _NO_SERIALIZERS)

    def enable_force_avro(self) -> NoReturn:
        raise no_jvm("enable_force_avro", _NO_SERIALIZERS)

    def disable_force_avro(self) -> NoReturn:
        raise no_jvm("disable_force_avro", _NO_SERIALIZERS)

    def is_force_avro_enabled(self) -> NoReturn:
        raise no_jvm("is_force_avro_enabled", _NO_SERIALIZERS)

    def get_default_kryo_serializer_classes(self) -> NoReturn:
        raise no_jvm("get_default_kryo_serializer_classes", _NO_SERIALIZERS)

    def get_registered_kryo_types(self) -> NoReturn:
        raise no_jvm("get_registered_kryo_types", _NO_SERIALIZERS)

    def get_registered_pojo_types(self) -> NoReturn:
        raise no_jvm("get_registered_pojo_types", _NO_SERIALIZERS)
