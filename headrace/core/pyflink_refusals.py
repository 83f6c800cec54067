"""Names of PyFlink that Headrace refuses: importable, and refused with the alternative when a program uses them.

These are names of Flink 1.x and names that stand for Java code. Names of the Table API and SQL, and those of PyFlink's
link with its JVM, are refused as soon as they are imported.
"""

from collections.abc import Callable
from typing import Any, Final, NoReturn

from headrace.core.errors import ProgramError


class JvmOnlyType(type):
    """The type of such classes: making an instance, or calling a static method, is refused."""

    instead: str

    def __call__(cls, *args: Any, **options: Any) -> NoReturn:
        """Raise ProgramError: there is nothing that the object could wrap."""
        raise no_jvm(cls.__name__, cls.instead)

    def __getattr__(cls, name: str) -> Callable[..., NoReturn]:
        if name.startswith("_"):
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")

        def refuse(*args: Any, **options: Any) -> NoReturn:
            raise no_jvm(f"{cls.__name__}.{name}", cls.instead)

        return refuse


def jvm_only(name: str, instead: str) -> JvmOnlyType:
    """Make the class of that name; `instead` names the alternative."""
    return JvmOnlyType(
        name, (), {"__doc__": f"PyFlink's; refused here: {instead}.", "instead": instead}
    )


def no_jvm(what: str, instead: str) -> ProgramError:
    """Return the error for a use of `what`."""
    return ProgramError(f"{what} stands for Java code of Flink, which cannot run here: {instead}")


class GoneType(JvmOnlyType):
    """The type of removed classes: making an instance, or using a member, is refused."""

    def __call__(cls, *args: Any, **options: Any) -> NoReturn:
        """Raise ProgramError: Flink 2 has no such class."""
        raise name_is_gone(cls.__name__, cls.instead)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")
        raise name_is_gone(f"{cls.__name__}.{name}", cls.instead)


def gone_class(name: str, instead: str) -> GoneType:
    """Make the class of that name; `instead` names the alternative."""
    return GoneType(name, (), {"__doc__": f"PyFlink 1.x's; gone: {instead}.", "instead": instead})


def gone_method(name: str, instead: str) -> Callable[..., NoReturn]:
    """Make a removed method of that name, which refuses every call; `instead` names the alternative."""
    return _refusing(name, f"PyFlink 1.x's; gone: {instead}.", name_is_gone(name, instead))


def jvm_method(name: str, instead: str) -> Callable[..., NoReturn]:
    """Make a method of that name that stands for Java code and refuses every call; `instead` names the alternative."""
    return _refusing(name, f"PyFlink's; refused here: {instead}.", no_jvm(name, instead))


def _refusing(name: str, doc: str, error: ProgramError) -> Callable[..., NoReturn]:
    def refuse(self: object, *args: Any, **options: Any) -> NoReturn:
        raise ProgramError(*error.args)

    refuse.__name__ = name
    refuse.__doc__ = doc
    return refuse


def name_is_gone(what: str, instead: str) -> ProgramError:
    """Return the error for a use of `what`."""
    return ProgramError(f"{what} belongs to Flink 1.x and was removed in Flink 2: {instead}")


def refuse_name(name: str) -> NoReturn:
    """Refuse a name; ProgramError names the alternative. Used as `__getattr__` in the modules that PyFlink has."""
    if name.startswith("_"):
        raise AttributeError(f"there is no attribute '{name}'")
    raise ProgramError(
        f"{name} belongs to Flink's Table API and SQL, which Headrace does not have: use streams, which have filters, "
        "joins, windows and aggregates of columns, or run DataFrames and SQL in Spark and read the result with "
        "from_dataframe"
    )


def refuse_internal_name(name: str) -> NoReturn:
    """Refuse a name with which PyFlink reaches its JVM or marks its own code. Used as `__getattr__` of modules."""
    if name.startswith("_"):
        raise AttributeError(f"there is no attribute '{name}'")
    raise ProgramError(
        f"{name} belongs to PyFlink's link with Flink's JVM, which does not exist here: remove it. Use a "
        "Configuration instead of settings of Java objects, and headrace.HeadraceError for errors"
    )


NO_SOURCE_FUNCTIONS: Final = (
    "give a Source to from_source, such as those of headrace.datastream.connectors"
)
"""Advice for `add_source` when it receives a SourceFunction."""
NO_SINK_FUNCTIONS: Final = "give a Sink to sink_to, such as those of headrace.datastream.connectors"
"""Advice for `add_sink` when it receives a SinkFunction."""

NO_INPUT_FORMATS: Final = (
    "give it a bounded Source, such as FileSource.for_bulk_file_format(format, path).build()"
)
"""Advice for `create_input` when it receives an InputFormat."""

SourceFunction: Final = jvm_only("SourceFunction", NO_SOURCE_FUNCTIONS)
SinkFunction: Final = jvm_only("SinkFunction", NO_SINK_FUNCTIONS)
InputFormat: Final = jvm_only("InputFormat", NO_INPUT_FORMATS)
AssignerWithPeriodicWatermarksWrapper: Final = jvm_only(
    "AssignerWithPeriodicWatermarksWrapper",
    "write a WatermarkStrategy with a TimestampAssigner, or with a WatermarkGenerator",
)
LocalTimeTypeInfo: Final = jvm_only(
    "LocalTimeTypeInfo", "use Types.SQL_DATE(), Types.SQL_TIME() or Types.SQL_TIMESTAMP()"
)
ExternalTypeInfo: Final = jvm_only("ExternalTypeInfo", "use the type that it would wrap")
