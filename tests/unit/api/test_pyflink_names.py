import enum
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from headrace.common import ExecutionConfig
from headrace.core.errors import ProgramError
from headrace.datastream import SinkFunction, SourceFunction, StreamExecutionEnvironment
from tests.unit.api.pyflink_names import CLASSES, EXPORTS, JVM_ONLY, JVM_ONLY_SETTINGS


def listed(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(module, name) for module, names in table.items() for name in names.split()]


def methods() -> Iterator[tuple[str, str, str]]:
    for module, classes in CLASSES.items():
        for name, found in classes.items():
            for method in found.split():
                yield module, name, method


def member(module: str, name: str) -> Any:
    return getattr(import_module(f"headrace.{module}"), name)


def test_every_name_of_pyflink_can_be_imported_from_where_it_stands_there() -> None:
    wanted = [*listed(EXPORTS), *listed(JVM_ONLY)]
    wanted += [(module, name) for module, classes in CLASSES.items() for name in classes]
    missing = [
        f"{module}.{name}"
        for module, name in wanted
        if not hasattr(import_module(f"headrace.{module}"), name)
    ]
    assert missing == []
    assert len(wanted) > 250


def test_every_method_of_pyflinks_classes_is_there() -> None:
    missing = [
        f"{module}.{name}.{method}"
        for module, name, method in methods()
        if not hasattr(member(module, name), method)
    ]
    assert missing == []


@pytest.mark.parametrize(("module", "name"), listed(JVM_ONLY))
def test_what_only_a_jvm_could_do_says_so_when_it_is_used(module: str, name: str) -> None:
    found = member(module, name)
    if isinstance(found, enum.EnumType):
        assert list(found)
        return
    for use in (lambda: found("a", b=1), lambda: found.builder(), lambda: found().build()):
        with pytest.raises(ProgramError, match=f"{name}.* cannot run here"):
            use()


@pytest.mark.parametrize("method", JVM_ONLY_SETTINGS.split())
def test_settings_that_only_a_jvm_could_obey_are_refused(method: str) -> None:
    with pytest.raises(ProgramError, match=f"^{method} stands for Java code"):
        getattr(ExecutionConfig(), method)()


def test_functions_around_java_objects_are_refused_with_what_to_do_instead() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(ProgramError, match=r"^add_source stands .*: give a Source to from_source"):
        env.add_source(object())

    class Own(SinkFunction): ...

    with pytest.raises(ProgramError, match=r"Own stands .* give a Sink to sink_to"):
        Own()
    with pytest.raises(TypeError, match=r"add_sink needs a Sink, not .* give a Sink to sink_to"):
        env.from_collection([1]).add_sink(object())  # pyright: ignore[reportArgumentType]
    assert not hasattr(SourceFunction, "_anything_private")
