"""rpc.md: what endpoints may ask of each other, from the gateway Protocols and the messages that they carry."""

import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Iterator
from typing import Any, Final, get_type_hints

import msgspec

from headrace import gateways
from headrace.core.errors import HeadraceError
from headrace.rpc.codec import PROTOCOL_VERSION
from headrace.rpc.contract import gateway_contract, is_gateway
from headrace.rpc.options import ASK_TIMEOUT, FRAME_SIZE
from tools.pages.markdown import first_line, first_paragraph, table

_INTRODUCTION: Final = f"""\
# Gateways of the control plane

Version {PROTOCOL_VERSION} of the protocol, declared in `headrace/gateways/`. An **ask** is answered, or fails within
`{ASK_TIMEOUT.key}`; a **tell** is not answered, and what goes wrong with it is logged by the callee. Arguments and
answers are encoded by their declared types; nothing is unpickled. A message larger than `{FRAME_SIZE.key}` is refused
by its sender. A call to a fenced gateway carries the token of the leader's session, and one with another token is
refused.
"""


def rpc_page() -> str:
    """All gateways, then all messages."""
    modules = [
        importlib.import_module(f"headrace.gateways.{info.name}")
        for info in pkgutil.iter_modules(gateways.__path__)
    ]
    lines = [_INTRODUCTION]
    for module in modules:
        for gateway in _defined_in(module):
            if is_gateway(gateway):
                lines += _gateway_lines(module, gateway)
    lines += ["## Messages", ""]
    for module in modules:
        messages = [one for one in _defined_in(module) if issubclass(one, msgspec.Struct)]
        if messages:
            lines += [f"### `{module.__name__}`", "", *_message_lines(messages), ""]
    lines += ["## Errors that arrive as what they are", "", *_error_lines(modules)]
    return "\n".join(lines) + "\n"


def _defined_in(module: types.ModuleType) -> Iterator[type[Any]]:
    """Classes of a module, in the order of their definition."""
    for value in vars(module).values():
        if inspect.isclass(value) and value.__module__ == module.__name__:
            yield value


def _gateway_lines(module: types.ModuleType, gateway: type[Any]) -> list[str]:
    contract = gateway_contract(gateway)
    rows: list[tuple[str, ...]] = []
    for name in [name for name in vars(gateway) if name in contract.methods]:
        method = contract.methods[name]
        function = getattr(gateway, name)
        hints = get_type_hints(function)
        arguments = [f"`{each}`: {type_text(hints[each])}" for each in method.parameter_names]
        rows.append(
            (
                f"`{name}`",
                "ask" if method.is_ask else "tell",
                "<br>".join(arguments) or "-",
                type_text(hints["return"]) if method.is_ask else "-",
                first_paragraph(function),
            )
        )
    headings = ("method", "kind", "arguments", "answer", "meaning")
    duty = first_line(module).partition(": ")[2]
    title = [f"## {gateway.__name__}", "", duty[:1].upper() + duty[1:], ""]
    return [*title, *table(headings, rows), ""]


def _message_lines(messages: list[type[Any]]) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for message in messages:
        hints = get_type_hints(message)
        fields = [f"`{name}`: {type_text(hints[name])}" for name in message.__struct_fields__]
        rows.append((f"`{message.__name__}`", "<br>".join(fields) or "-", first_paragraph(message)))
    return table(("message", "fields", "meaning"), rows)


def _error_lines(modules: list[types.ModuleType]) -> list[str]:
    errors = [
        one for module in modules for one in _defined_in(module) if issubclass(one, HeadraceError)
    ]
    return table(
        ("error", "meaning"), [(f"`{one.__name__}`", first_paragraph(one)) for one in errors]
    )


def type_text(annotation: Any) -> str:
    """Return a type as people read it: `A or B`, `tuple[A, …]`, plain class names."""
    if annotation is types.NoneType:
        return "nothing"
    if annotation is Ellipsis:
        return "…"
    parts = [type_text(part) for part in typing.get_args(annotation)]
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(parts)
    if origin is not None:
        return f"{origin.__name__}[{', '.join(parts)}]"
    return getattr(annotation, "__name__", str(annotation))
