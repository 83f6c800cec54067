"""pyflink_parity.md: every public name of PyFlink's DataStream API, and what it is here.

The facts about PyFlink are those of tools/pyflink_names.json, which tools/read_pyflink.py reads from its sources.
"""

import ast
import enum
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

from headrace.core.errors import HeadraceError
from headrace.core.pyflink_refusals import JvmOnlyType
from tools.pages.markdown import first_line, table

FACTS: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "pyflink_names.json").read_text(encoding="utf-8")
)

_INTRODUCTION: Final = """\
# PyFlink's names

Headrace follows the DataStream API of PyFlink {version}: a program ports by changing `pyflink` to `headrace` in its
imports. Every public name of `pyflink.common` and `pyflink.datastream` stands below with what it is here: **there**,
as in PyFlink; **kept**: a setting that can be set and read, but has no effect (a job that sets it is told so);
**refused**: it can be imported, and using it raises an error that says what to do instead; or **absent**. A method has
a line of its own only if it differs from PyFlink's. Classes and methods that hand Java objects over are left out.

{counts}
"""

KEPT: Final = frozenset(
    {
        "StreamExecutionEnvironment.register_cached_file",
        "SlotSharingGroup.Builder.set_cpu_cores",
        "SlotSharingGroup.Builder.set_task_heap_memory",
        "SlotSharingGroup.Builder.set_task_heap_memory_mb",
        "SlotSharingGroup.Builder.set_task_off_heap_memory",
        "SlotSharingGroup.Builder.set_task_off_heap_memory_mb",
        "SlotSharingGroup.Builder.set_managed_memory",
        "SlotSharingGroup.Builder.set_managed_memory_mb",
        "SlotSharingGroup.Builder.set_external_resource",
        "EmbeddedRocksDBStateBackend.set_predefined_options",
        "EmbeddedRocksDBStateBackend.set_number_of_transfer_threads",
    }
)
"""Setters whose values are given back, and change nothing."""

INTERNAL: Final[dict[str, str]] = {
    "common.utils": "a base of PyFlink's wrappers of Java objects",
    "datastream.utils": "what PyFlink needs to hand Java objects over",
    "common.io.InputFormat": "a base of wrappers of Java objects; files are read with FileSource",
    "datastream.data_stream.KeyedStream.AccumulateType": "how PyFlink tells its own sum, min and max apart",
    "datastream.functions.AsyncFunctionDescriptor": "how PyFlink hands a function to its workers",
    "datastream.output_tag.OutputTag.__setstate__": "how PyFlink unpickles tags",
    "datastream.window.long_to_int_with_bit_mixing": "a part of PyFlink's serializers of windows",
    "datastream.window.mod_inverse": "a part of PyFlink's serializers of windows",
    "datastream.window.Min": "a part of PyFlink's windows",
    "datastream.window.WindowOperationDescriptor": "how PyFlink hands a window to its workers",
}
"""Names of modules, and of things in them, that programs have no use for: how PyFlink is made."""


@dataclass(frozen=True)
class Fact:
    """What became of one name, `DataStream` or `DataStream.map`, of PyFlink's `module`. `arguments` are PyFlink's."""

    module: str
    name: str
    state: str
    note: str = ""


def facts() -> Iterator[Fact]:
    """Every public name, in order."""
    for module, names in FACTS["modules"].items():
        for name, members in names.items():
            yield from _facts_of(module, name, members)


def gone_names() -> Iterator[tuple[str, str]]:
    """Every name of older releases that newer ones lack: the module, and `Class` or `Class.method`."""
    for module, names in FACTS["gone"].items():
        for name, members in names.items():
            if members is None:
                yield module, name
            for member in members or ():
                yield module, f"{name}.{member}"


def pyflink_parity_page() -> str:
    """The table, module by module."""
    found = list(facts())
    states = ("there", "kept", "refused", "absent", "internal")
    counts = table(
        ("", *states),
        [
            ("names", *(str(sum(one.state == state for one in found)) for state in states)),
        ],
    )
    lines = [_INTRODUCTION.format(version=FACTS["version"], counts="\n".join(counts))]
    for module in FACTS["modules"]:
        rows = [
            (f"`{one.name}`", one.state, one.note)
            for one in found
            if one.module == module and (one.state != "there" or one.note or "." not in one.name)
        ]
        lines += [f"## `headrace.{module}`", "", *table(("name", "state", "note"), rows), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _facts_of(module: str, name: str, members: Any) -> Iterator[Fact]:
    reason = INTERNAL.get(module) or INTERNAL.get(f"{module}.{name}")
    if reason is not None:
        yield Fact(module, name, "internal", reason)
        return
    try:
        ours = getattr(import_module(f"headrace.{module}"), name)
    except (AttributeError, ImportError, HeadraceError):
        yield Fact(module, name, "absent")
        return
    if isinstance(ours, JvmOnlyType):
        yield Fact(module, name, "refused", ours.instead)
        return
    is_class = inspect.isclass(ours)
    yield Fact(
        module, name, "there", "" if is_class or members is None else _difference(ours, members)
    )
    if not is_class or not isinstance(members, dict):
        return
    for member, arguments in members.items():
        yield _member_fact(module, ours, f"{name}.{member}", arguments)


def _member_fact(module: str, ours: Any, name: str, arguments: str | None) -> Fact:
    reason = next(
        (why for key, why in INTERNAL.items() if f"{module}.{name}".startswith(key)), None
    )
    if reason is not None:
        return Fact(module, name, "internal", reason)
    value: Any = ours
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    if value is None and not name.endswith("__hash__"):
        return Fact(module, name, "absent")
    if getattr(value, "__annotations__", {}).get("return") in ("NoReturn", NoReturn):
        return Fact(module, name, "refused", first_line(value))
    state = "kept" if name in KEPT else "there"
    # What Python calls by itself is called by place, and so are enums' and exceptions' makers.
    is_by_place = name.endswith("__") and not name.endswith(("__init__", "__call__"))
    if arguments is None or is_by_place or (inspect.isclass(ours) and issubclass(ours, enum.Enum)):
        return Fact(module, name, state)
    return Fact(module, name, state, _difference(value, arguments))


def _difference(ours: Any, arguments: str) -> str:
    """Say how a call that fits PyFlink's arguments could fail to fit ours; "" where it cannot."""
    theirs = _parameters(arguments)
    try:
        given = inspect.signature(ours).parameters.values()
    except (TypeError, ValueError):
        return ""
    plain = [one for one in given if one.name not in ("self", "cls")]
    if any(one.kind is one.VAR_POSITIONAL for one in plain) and any(
        one.kind is one.VAR_KEYWORD for one in plain
    ):
        return ""
    names = {one.name for one in plain}
    takes_any = any(one.kind is one.VAR_KEYWORD for one in plain)
    said: list[str] = []
    for index, (name, default) in enumerate(theirs):
        if name.startswith(("*", "j_")):
            continue
        if name not in names:
            if not takes_any:
                said.append(f"no argument `{name}`")
            continue
        one = next(one for one in plain if one.name == name)
        if default is not None and one.default is one.empty:
            said.append(f"`{name}` has no default")
        by_place = index < len(plain) and plain[index].name == name
        if not by_place and not any(one.kind is one.VAR_POSITIONAL for one in plain):
            said.append(f"`{name}` stands elsewhere")
        if (
            default is not None
            and one.default is not one.empty
            and not _is_same(default, one.default)
        ):
            said.append(f"`{name}` is {one.default!r} by default, not {default}")
    known = {name for name, _ in theirs}
    for one in plain:
        is_optional = one.default is not one.empty or one.kind in (
            one.VAR_POSITIONAL,
            one.VAR_KEYWORD,
        )
        if one.name not in known and not is_optional:
            said.append(f"needs `{one.name}`")
    return "; ".join(said)


def _parameters(arguments: str) -> list[tuple[str, str | None]]:
    """Return the names of arguments, with a star where they have one, and their defaults."""
    function: Any = ast.parse(f"def f({arguments}): ...").body[0]
    args = function.args
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + [
        ast.unparse(one) for one in args.defaults
    ]
    found = [(one.arg, default) for one, default in zip(plain, defaults, strict=True)]
    if args.vararg:
        found.append((f"*{args.vararg.arg}", None))
    for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found.append((one.arg, None if default is None else ast.unparse(default)))
    if args.kwarg:
        found.append((f"**{args.kwarg.arg}", None))
    return found


def _is_same(text: str, value: Any) -> bool:
    if isinstance(value, enum.Enum):
        return text == f"{type(value).__name__}.{value.name}"
    if not re.fullmatch(r"[\w\s.*'\"+;:()-]*", text):
        return True
    try:
        return bool(eval(text, {}) == value)
    except NameError:
        return True
