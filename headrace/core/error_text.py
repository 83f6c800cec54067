"""Renders an error: first the line that names the cause, then the user's own frames, and the rest on demand."""

import os
import re
import traceback
from typing import Final

from headrace.core.errors import ErrorDomain, HeadraceError, is_user_file

DETAILS_VARIABLE: Final = "HEADRACE_DETAILS"
"""Environment variable that shows whole tracebacks when it is 1."""
_HINT: Final = f"({DETAILS_VARIABLE}=1 shows the whole traceback)"
_TRACEBACK: Final = "Traceback (most recent call last):"
_LINKS: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NOT_ON_A_LINE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_FRAME: Final = re.compile(r' *File "([^"]+)", line \d+')


def without_controls(text: str) -> str:
    """Return foreign text with a visible sign for each control character, which a terminal would obey."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def on_one_line(text: str) -> str:
    """Return a foreign name for use in a line, with line ends and control characters escaped."""
    return _NOT_ON_A_LINE.sub(lambda found: repr(found[0])[1:-1], text)


def wants_details() -> bool:
    """Return whether the user has requested whole tracebacks."""
    return os.environ.get(DETAILS_VARIABLE) == "1"


def describe(error: BaseException, *, wants_details: bool) -> list[str]:
    """Return the lines to show: first the one that names the cause.

    For Headrace's own errors this is their first line, followed by the explanation; for others the class, the text and
    the place in the user's program.
    """
    whole = traceback.format_exception(error)
    if isinstance(error, HeadraceError):
        first, *rest = str(error).split("\n")
        frames = user_frames(error)
        if frames and not error.recoverable and error.domain is ErrorDomain.USER:
            # Such an error is raised where the program says something wrong; a line that it names itself is better.
            place = frames[-1].rpartition(", in ")[0]
            first += "" if ", line " in first else f" ({place})"
        # The cause that is repeated in the last line is shown only once here.
        lines = [first, *(line.removesuffix(f": {first}") for line in rest if line.strip())]
        return lines + "".join(whole).splitlines() if wants_details else _of_user(lines)
    name = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = user_frames(error)
    lines = [f"{name} ({frames[-1]})" if frames else name]
    if wants_details:
        return lines + "".join(whole).splitlines()
    if frames:
        lines += ["in the program:", *(f"  {frame}" for frame in frames)]
    return [*lines, *_origins(error), _HINT]


def _origins(error: BaseException) -> list[str]:
    """Return a line for each cause of an error of the program; the last is the first error."""
    lines: list[str] = []
    seen = {id(error)}
    while True:
        cause = error.__cause__
        word = "caused by" if cause is not None else "while handling"
        if cause is None and not error.__suppress_context__:
            cause = error.__context__
        if cause is None or id(cause) in seen:
            return lines
        seen.add(id(cause))
        lines.append(f"{word}: {describe(cause, wants_details=False)[0]}")
        error = cause


def _of_user(lines: list[str]) -> list[str]:
    """Remove frames of tracebacks that are not in the user's files, and name the setting that shows them.

    If no frame is the user's, only an exception is kept that the lines before do not name.
    """
    if _TRACEBACK not in lines:
        return lines
    begin = lines.index(_TRACEBACK)
    kept: list[str] = []
    is_shown, has_user_frame = True, False
    for line in lines[begin:]:
        frame = _FRAME.match(line)
        if frame is not None:
            is_shown = is_user_file(frame[1])
            has_user_frame |= is_shown
        elif not line.startswith("  "):
            is_shown = True
        if is_shown:
            kept.append(line)
    if len(kept) == len(lines) - begin:
        return lines
    before = lines[:begin]
    if not has_user_frame:
        kept = [line for line in kept if not _is_repeated(line, before)]
        # An error that was never raised by itself has no traceback, and stands before the first.
        before = [lines[0], *(line for line in before[1:] if not _is_repeated(line, lines[:1]))]
    return [*before, *kept, _HINT]


def _is_repeated(line: str, before: list[str]) -> bool:
    """Return whether a line of a traceback repeats the message; tracebacks name classes with their modules."""
    name, colon, text = line.partition(":")
    if name.startswith("headrace.") and text:
        # The class of a Headrace error adds nothing to its text for a user.
        said = text
    else:
        said = name.rpartition(".")[2] + colon + text
    return line in (_TRACEBACK, *_LINKS) or any(said in one for one in before)


def user_frames(error: BaseException) -> list[str]:
    """Return `file, line n, in function` of the frames in the user's own files, outermost first."""
    return [
        f"{frame.filename}, line {frame.lineno}, in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if is_user_file(frame.filename)
    ]


def notebook_lines(error: HeadraceError) -> list[str]:
    """Return the lines that a notebook shows: the class and the cause, the explanation, and the user's frames."""
    if wants_details():
        return "".join(traceback.format_exception(error)).splitlines()
    first, *rest = describe(error, wants_details=False)
    notes: list[str] = getattr(error, "__notes__", [])
    notes = [*notes, *filter(None, (error.aftermath,))]
    frames = [f"  {frame}" for frame in user_frames(error)]
    lines = [f"{type(error).__name__}: {first}", *(line for line in rest if line != _HINT), *notes]
    return [*lines, *(["in the program:", *frames] if frames else []), _HINT]
