"""Exceptions on the wire: class name, text, facts, notes, traceback and cause, as plain values.

An error of the HeadraceError tree whose facts (its attributes) are all plain values is rebuilt as the same class, if
that is loaded in this process; classes are looked up among those, never imported by name. Every other exception becomes
a RemoteError with class name, text and traceback. Errors with structured facts may `register` a codec.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from headrace.core.errors import HeadraceError, RemoteError

E = TypeVar("E", bound=HeadraceError)
F = TypeVar("F")

_TEXT_MAX: Final = 64 * 1024
_CHAIN_MAX: Final = 8
_NOTES_MAX: Final = 16

Plain = bool | int | float | str | None
_LOADED: Final[dict[str, type[HeadraceError]]] = {}


class RemoteFailure(msgspec.Struct, frozen=True):
    """An exception in transit. `structured` holds the facts of a registered codec instead of `facts`."""

    class_name: str
    text: str
    traceback: str = ""
    facts: dict[str, Plain] | None = None
    structured: bytes | None = None
    notes: tuple[str, ...] = ()
    cause: "RemoteFailure | None" = None
    is_context: bool = False


@dataclass(frozen=True)
class _StructuredCodec(Generic[E, F]):
    to_facts: Callable[[E], F]
    from_facts: Callable[[F], E]
    decoder: msgspec.msgpack.Decoder[F]


_STRUCTURED: Final[dict[type[HeadraceError], _StructuredCodec[Any, Any]]] = {}


def register(
    error_type: type[E],
    facts_type: type[F],
    to_facts: Callable[[E], F],
    from_facts: Callable[[F], E],
) -> None:
    """Register a codec for the facts of `error_type`, if they are not plain values.

    `facts_type` is their msgspec type.
    """
    _STRUCTURED[error_type] = _StructuredCodec(
        to_facts, from_facts, msgspec.msgpack.Decoder(facts_type)
    )


def encode_error(error: BaseException) -> RemoteFailure:
    """Encode `error` and its causes. Bounded: long texts are cut in the middle, chains after 8 links.

    Never raises: of an error that cannot be described (its `str`, its notes or its codec fail) only the name is sent.
    """
    try:
        return _encode(error, _CHAIN_MAX)
    except Exception as failure:
        reason = f"the error could not be described: {type(failure).__name__}: {_text_of(failure)}"
        return RemoteFailure(_class_name(type(error)), reason)


def decode_error(failure: RemoteFailure, origin: str) -> Exception:
    """Rebuild an error. The remote traceback names `origin`, the address from which the error came."""
    error = _rebuild(failure, origin)
    for note in failure.notes:
        error.add_note(note)
    if failure.cause is not None:
        cause = decode_error(failure.cause, origin)
        if failure.is_context:
            error.__context__ = cause
        else:
            error.__cause__ = cause
    return error


def _encode(error: BaseException, links_left: int) -> RemoteFailure:
    cause = error.__cause__
    follows_context = cause is None and not error.__suppress_context__
    if follows_context:
        cause = error.__context__
    facts, structured = _facts_of(error)
    return RemoteFailure(
        class_name=_class_name(type(error)),
        text=shorten_middle(_text_of(error)),
        traceback=shorten_middle(_traceback_of(error)),
        facts=facts,
        structured=structured,
        notes=tuple(
            shorten_middle(str(note)) for note in getattr(error, "__notes__", ())[:_NOTES_MAX]
        ),
        cause=None if cause is None or links_left <= 1 else _encode(cause, links_left - 1),
        is_context=follows_context,
    )


def _facts_of(error: BaseException) -> tuple[dict[str, Plain] | None, bytes | None]:
    if not isinstance(error, HeadraceError):
        return None, None
    codec = _STRUCTURED.get(type(error))
    if codec is not None:
        return None, msgspec.msgpack.encode(codec.to_facts(error))
    facts = {
        name: shorten_middle(value) if type(value) is str else value
        for name, value in vars(error).items()
        if not name.startswith("__")
    }
    # An integer past 64 bits does not fit; such an error travels as a RemoteError.
    if all(_is_plain(value) for value in facts.values()):
        return cast("dict[str, Plain]", facts), None
    return None, None


def _is_plain(value: object) -> bool:
    match value:
        case bool() | float() | None:
            return True
        case int():
            return -(1 << 63) <= value < 1 << 63
        case str():
            return type(value) is str
        case _:
            return False


def _rebuild(failure: RemoteFailure, origin: str) -> Exception:
    error_type = _loaded_class(failure.class_name)
    if error_type is not None:
        codec = _STRUCTURED.get(error_type)
        if codec is not None and failure.structured is not None:
            try:
                error = codec.from_facts(codec.decoder.decode(failure.structured))
            except Exception:  # facts of another version; the text says it all
                return RemoteError(failure.class_name, failure.text, failure.traceback)
            return _with_remote_traceback(error, failure, origin)
        if failure.facts is not None:
            # Without the constructor, which may need arguments that were not sent: text and facts are known.
            error = error_type.__new__(error_type)
            error.args = (failure.text,)
            vars(error).update(failure.facts)
            return _with_remote_traceback(error, failure, origin)
    return RemoteError(failure.class_name, failure.text, failure.traceback)


def _with_remote_traceback(error: HeadraceError, failure: RemoteFailure, origin: str) -> Exception:
    if failure.traceback:
        error.add_note(f"raised at {origin}:\n{failure.traceback.rstrip()}")
    return error


def _loaded_class(name: str) -> type[HeadraceError] | None:
    if name not in _LOADED:
        # Classes appear as modules are imported; a miss is rare enough to walk the tree again.
        pending: list[type[HeadraceError]] = [HeadraceError]
        while pending:
            error_type = pending.pop()
            _LOADED[_class_name(error_type)] = error_type
            pending.extend(error_type.__subclasses__())
    return _LOADED.get(name)


def _class_name(error_type: type[BaseException]) -> str:
    if error_type.__module__ == "builtins":
        return error_type.__qualname__
    return f"{error_type.__module__}.{error_type.__qualname__}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:
        return f"<str() failed with {type(failure).__name__}>"


def _traceback_of(error: BaseException) -> str:
    lines = traceback.format_exception(type(error), error, error.__traceback__, chain=False)
    return "".join(lines) if error.__traceback__ is not None else ""


def shorten_middle(text: str) -> str:
    """Cut a long text in the middle, so that an error fits into a message whatever a user's exception says."""
    if len(text) <= _TEXT_MAX:
        return text.encode("utf-8", "replace").decode()
    half = _TEXT_MAX // 2
    return shorten_middle(text[: half - 10] + "\n … \n" + text[-half + 10 :])
