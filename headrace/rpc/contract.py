"""Wire contract of a gateway Protocol: its methods, with codecs for arguments and replies, and their handlers.

`async def` is an ask, a plain `def … -> None` a tell. Annotations are the schema: arguments and replies are limited to
their declared types, so that a gateway that would pass a live object cannot even be declared. `collect_handlers` finds
the methods of an endpoint that serve the calls of its gateways.
"""

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

import msgspec

from headrace.core.errors import DECODE_ERRORS
from headrace.rpc.errors import GatewayDefinitionError, SerializationError

_ENCODER: Final = msgspec.msgpack.Encoder()


@dataclass(frozen=True, eq=False)
class MethodContract:
    """Contract of one method: binds, encodes and decodes a call and its reply."""

    gateway_name: str
    name: str
    is_ask: bool
    signature: inspect.Signature
    parameter_names: tuple[str, ...]
    argument_decoder: msgspec.msgpack.Decoder[Any]
    reply_decoder: msgspec.msgpack.Decoder[Any]

    @property
    def full_name(self) -> str:
        """Return `Gateway.method`, for messages."""
        return f"{self.gateway_name.rpartition('.')[2]}.{self.name}"

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments in the order of the parameters, defaults filled in; TypeError as Python raises it."""
        if not kwargs and len(args) == len(self.parameter_names):
            return args
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return tuple(bound.arguments[name] for name in self.parameter_names)

    def encode_arguments(self, arguments: tuple[Any, ...]) -> bytes:
        """Encode bound arguments; SerializationError, which names the argument, if one cannot be encoded."""
        try:
            return _ENCODER.encode(arguments)
        except Exception:
            for name, value in zip(self.parameter_names, arguments, strict=True):
                self._encode(f"argument '{name}'", value)
            raise

    def decode_arguments(self, encoded: bytes | msgspec.Raw) -> tuple[Any, ...]:
        """Decode arguments; SerializationError unless they are of the declared types."""
        try:
            return self.argument_decoder.decode(encoded)
        except DECODE_ERRORS as error:
            raise SerializationError(
                self.full_name, f"arguments {list(self.parameter_names)}", str(error)
            ) from error

    def encode_reply(self, value: object) -> bytes:
        """Encode a result; SerializationError if it cannot be encoded."""
        return self._encode("result", value)

    def decode_reply(self, encoded: bytes | msgspec.Raw) -> Any:
        """Decode a result; SerializationError unless it is of the declared type."""
        try:
            return self.reply_decoder.decode(encoded)
        except DECODE_ERRORS as error:
            raise SerializationError(self.full_name, "result", str(error)) from error

    def _encode(self, what: str, value: object) -> bytes:
        try:
            return _ENCODER.encode(value)
        except Exception as error:
            raise SerializationError(
                self.full_name, f"{what} ({type(value).__name__})", str(error)
            ) from error


@dataclass(frozen=True, eq=False)
class GatewayContract:
    """Methods of one gateway. `name` is the qualified name of the Protocol."""

    name: str
    methods: Mapping[str, MethodContract]


@functools.cache
def gateway_contract(gateway_type: type) -> GatewayContract:
    """Return the contract of a Protocol class; GatewayDefinitionError if one of its types cannot be encoded."""
    if not is_gateway(gateway_type):
        raise GatewayDefinitionError(f"{gateway_type!r} is not a Protocol class")
    name = f"{gateway_type.__module__}.{gateway_type.__qualname__}"
    methods = {
        function.__name__: _method_contract(name, function)
        for _, function in inspect.getmembers(gateway_type, inspect.isfunction)
        if not function.__name__.startswith("_")
    }
    return GatewayContract(name, methods)


def is_gateway(candidate: type) -> bool:
    """Return whether a class is itself a Protocol with methods, as opposed to a class that implements one."""
    return bool(candidate.__dict__.get("_is_protocol", False)) and any(
        inspect.isfunction(member) and not name.startswith("_")
        for name, member in inspect.getmembers(candidate)
    )


def _method_contract(gateway_name: str, function: types.FunctionType) -> MethodContract:
    hints = get_type_hints(function)
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1:]
    where = f"{gateway_name}.{function.__name__}"
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise GatewayDefinitionError(
                f"{where}: *args and **kwargs are not supported, as they cannot be typed"
            )
        if parameter.name not in hints:
            raise GatewayDefinitionError(
                f"{where}: parameter '{parameter.name}' has no type annotation"
            )
        _check_type(f"{where}: parameter '{parameter.name}'", hints[parameter.name])
    reply_type = hints.get("return", Any)
    is_ask = inspect.iscoroutinefunction(function)
    if not is_ask and reply_type is not type(None):
        raise GatewayDefinitionError(
            f"{where}: a plain method is a tell and must return None; use `async def` for an answer"
        )
    _check_type(f"{where}: reply", reply_type)
    argument_types = tuple(hints[parameter.name] for parameter in parameters)
    return MethodContract(
        gateway_name=gateway_name,
        name=function.__name__,
        is_ask=is_ask,
        signature=signature.replace(parameters=parameters),
        parameter_names=tuple(parameter.name for parameter in parameters),
        argument_decoder=msgspec.msgpack.Decoder(
            types.GenericAlias(tuple, argument_types or ((),))
        ),
        reply_decoder=msgspec.msgpack.Decoder(reply_type),
    )


def _check_type(where: str, declared: Any) -> None:
    """Refuse types outside the closed schema: `Any`, arbitrary classes, live gateways."""
    try:
        described = msgspec.inspect.type_info(declared)
    except TypeError as error:
        raise GatewayDefinitionError(f"{where}: {error}") from error
    seen: set[int] = set()
    pending: list[object] = [described]
    while pending:
        part = pending.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        match part:
            case msgspec.inspect.CustomType(cls=cls):
                raise GatewayDefinitionError(f"{where}: a {cls.__name__} cannot be encoded")
            case msgspec.inspect.AnyType():
                raise GatewayDefinitionError(
                    f"{where}: Any is not a type that can be encoded; declare the type"
                )
            case msgspec.inspect.Type():
                pending.extend(getattr(part, name) for name in part.__struct_fields__)
            case msgspec.inspect.Field():
                pending.append(part.type)
            case tuple():
                pending.extend(part)
            case _:
                pass


@dataclass(frozen=True, eq=False)
class Handler:
    """A bound method of an endpoint, sync or async, and the contract it fulfils."""

    contract: MethodContract
    function: Callable[..., Any]
    is_async: bool


@dataclass(frozen=True, eq=False)
class Handlers:
    """Handlers of one endpoint, by gateway and method name."""

    gateways: frozenset[str]
    by_method: Mapping[tuple[str, str], Handler]

    def find(self, gateway: str, method: str) -> Handler | None:
        """Return the handler, or None if the endpoint does not offer it."""
        return self.by_method.get((gateway, method))


def collect_handlers(endpoint: object, declared: tuple[type, ...]) -> Handlers:
    """Return the handlers of the gateways that an endpoint inherits from or declares.

    GatewayDefinitionError if a method is missing; the Protocol's own empty body does not count.
    """
    inherited = tuple(cls for cls in type(endpoint).__mro__ if is_gateway(cls))
    names: set[str] = set()
    handlers: dict[tuple[str, str], Handler] = {}
    for gateway_type in (*inherited, *declared):
        contract = gateway_contract(gateway_type)
        names.add(contract.name)
        for name, method in contract.methods.items():
            function = getattr(endpoint, name, None)
            body = getattr(type(endpoint), name, None)
            if function is None or body is getattr(gateway_type, name):
                raise GatewayDefinitionError(
                    f"{type(endpoint).__name__} does not implement {method.full_name}"
                )
            handlers[contract.name, name] = Handler(
                method, function, inspect.iscoroutinefunction(function)
            )
    return Handlers(frozenset(names), handlers)
