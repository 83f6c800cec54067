"""Error reports: format an error for the client; the first line names cause, operator and the user's line."""

import logging
import re
import traceback
from typing import Final

import msgspec

from headrace.core.error_codec import shorten_middle
from headrace.core.errors import (
    ClusterDatasetCorruptedError,
    ErrorDomain,
    HeadraceError,
    RemoteError,
    UserCodeError,
    is_outage,
    is_user_file,
)
from headrace.gateways.messages import ErrorInfo

_LOG = logging.getLogger(__name__)
_FRAME: Final = re.compile(r'^ *File "([^"\n]+)", line \d+', re.MULTILINE)


def error_info_of(error: BaseException, where: str = "") -> ErrorInfo:
    """Return a report of `error`; `where` (a task or operator) is added unless the error names one.

    Bounded: long texts are cut in the middle.
    """
    info = _describe(error, where)
    return msgspec.structs.replace(
        info, text=shorten_middle(info.text), remote_traceback=shorten_middle(info.remote_traceback)
    )


def _describe(error: BaseException, where: str) -> ErrorInfo:
    if isinstance(error, UserCodeError):
        # The text of a user's exception may have many lines; its location belongs on the first one.
        cause, _, _ = error.cause_text.partition("\n")
        first = (
            f"{error.cause_type}: {cause} (in operator '{error.operator_name}', {error.location})"
        )
        return ErrorInfo(
            type(error).__name__,
            first,
            error.domain.name,
            error.recoverable,
            error.remote_traceback,
            error.is_consequence,
            fault=f"{error.cause_type} in operator '{error.operator_name}', {error.location}"
            if error.repeats
            else "",
        )
    trace = "".join(traceback.format_exception(error))
    if isinstance(error, RemoteError):
        name, text, trace = error.class_name, str(error).partition("\n")[0], error.remote_traceback
        return ErrorInfo(name, _located(text, where), error.domain.name, error.recoverable, trace)
    if isinstance(error, HeadraceError):
        first, _, rest = str(error).partition("\n")
        text = _located(first, where) + (f"\n{rest}" if rest else "")
        return ErrorInfo(
            type(error).__name__,
            text,
            error.domain.name,
            error.recoverable,
            _telling_trace(error.domain, trace),
            error.is_consequence,
            # For errors of the exchange, whose classes are not imported here.
            getattr(error, "partition_text", "") if error.is_consequence else "",
            error.data_set if isinstance(error, ClusterDatasetCorruptedError) else None,
            _located(type(error).__name__, where) if error.repeats else "",
        )
    name = type(error).__name__
    first = _located(f"{name}: {error}".partition("\n")[0], where)
    fault = "" if is_outage(error) else _located(name, where) + _innermost(error)
    return ErrorInfo(name, first, ErrorDomain.INTERNAL.name, True, trace, fault=fault)


def _innermost(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f", {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""


def _telling_trace(domain: ErrorDomain, trace: str) -> str:
    """Return the traceback, or nothing if the text says how to fix the error and no user file is in the traceback."""
    if domain is ErrorDomain.INTERNAL:
        return trace
    if any(is_user_file(name) for name in _FRAME.findall(trace)):
        return trace
    _LOG.info("traceback of an error that is reported to the user without it:\n%s", trace)
    return ""


def first_line(info: ErrorInfo) -> str:
    """Return the first line of the report."""
    return info.text.partition("\n")[0]


def _located(text: str, where: str) -> str:
    return f"{text} (in {where})" if where and where not in text else text
