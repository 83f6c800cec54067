"""Turns Spark's errors into one line for users, with the details below it."""

import errno
import re
import socket
from typing import Any, ClassVar, Final, Self

from py4j.protocol import Py4JJavaError

from headrace.core.errors import HostError, is_user_file

_PYTHON_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON_FRAME: Final = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+)', re.MULTILINE)
_SPARK_FILE: Final = re.compile(r"/pyspark(?:\.zip)?/")
_EXCEPTION_LINE: Final = re.compile(
    r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b.*$"
)
_JVM_FRAME: Final = re.compile(
    r"\s+at [\w.$]+\(?|\s+\.\.\. \d+ more|Driver stacktrace:|Caused by: java\.io\.EOFException"
)
_LOST_TASK: Final = re.compile(
    r"most recent failure: Lost task [^:]*?(?:\(TID \d+\) )?\([^)]*\): (?P<cause>.*)", re.DOTALL
)


# The error that Spark's worker raises, and the packages that Headrace's pickles need.
_VERSION_MISMATCH: Final = "PYTHON_VERSION_MISMATCH"
_OWN_PACKAGES: Final = (
    "headrace", "pyspark", "py4j", "cloudpickle", "msgspec", "pyarrow", "uvloop", "numpy", "zlib_ng",
)  # fmt: skip
_NO_PACKAGE: Final = re.compile(rf"No module named '?(?P<package>{'|'.join(_OWN_PACKAGES)})\b")
LASTING_ERRNOS: Final = (
    errno.ENOENT, errno.ENOEXEC, errno.EACCES, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP,
)  # fmt: skip
"""Errors with which no later start of a program succeeds.

Others, such as ENOMEM, pass, so that the host is tried again.
"""
_LASTING_ERRNO: Final = f"(?:{'|'.join(map(str, LASTING_ERRNOS))})"
_NOT_RUN: Final = re.compile(
    rf'Cannot run program "[^"]*"[^:]*: (?:error={_LASTING_ERRNO}, |(?=Exec failed, error: {_LASTING_ERRNO} ))'
    r"(?P<cause>[^\n]*)"
)
_NO_ENVIRONMENT: Final = "the Python environment of the job cannot be used"
_ENVIRONMENT_NOT_MADE: Final = f"{_NO_ENVIRONMENT} for now"
_END_OF_ERROR: Final = "\0"
_TASK_HOST: Final = re.compile(r"\(TID \d+\) \((?P<host>\S+) executor")
# A TaskManager's errors about settings before it registers; later ones fail tasks, not the TaskManager.
_OWN_SETTINGS: Final = re.compile(
    r"headrace\.[\w.]+\.(?:PortInUseError|ConfigurationError): (?P<cause>.*)"
)


def root_message(error: BaseException) -> str:
    """Return the text of `error` with the cause in its first line; for a JVM error, Spark's message."""
    if not isinstance(error, Py4JJavaError):
        return tidy(f"{type(error).__name__}: {error}")
    try:
        java_error = error.java_exception
        # A future wraps what happened; below Spark's own exception come only details such as an end of file.
        while java_error.getCause() is not None and _is_wrapper(java_error):
            java_error = java_error.getCause()
        text = java_error.getMessage() or java_error.toString()
    except Exception:
        # The JVM may die while it is asked.
        text = str(error)
    return tidy(str(text))


def _is_wrapper(java_error: Any) -> bool:
    return str(java_error.getClass().getName()).startswith("java.util.concurrent.")


def tidy(text: str) -> str:
    """Return the text with the cause in front: a Python exception's last line, else Spark's cause for the lost task.

    JVM frames are removed: they are Spark's own and always the same.
    """
    text = "\n".join(line for line in text.split("\n") if not _JVM_FRAME.match(line))
    exception_line = python_exception_line(text)
    if exception_line is not None:
        return f"{exception_line}\n{text}"
    lost = _LOST_TASK.search(text)
    if lost is not None:
        cause = lost.group("cause").split("\n", 1)[0].strip()
        return f"{cause}\n{text}" if cause else text
    return text


def python_exception_line(text: str) -> str | None:
    """Return the last line of the Python traceback in `text` (`ValueError: …`), or None if there is none."""
    start = text.find(_PYTHON_TRACEBACK)
    if start < 0:
        return None
    found: str | None = None
    for line in text[start:].splitlines():
        stripped = line.strip()
        if line[:1] not in (" ", "\t") and _EXCEPTION_LINE.match(stripped):
            found = stripped
    return found


def user_location_in(text: str) -> str:
    """Return `file, line n` of the user's innermost frame in the Python traceback in `text`; empty if there is none."""
    start = text.find(_PYTHON_TRACEBACK)
    found = ""
    for frame in _PYTHON_FRAME.finditer(text, max(0, start)):
        if start >= 0 and is_user_file(frame["file"]) and not _SPARK_FILE.search(frame["file"]):
            found = f"{frame['file']}, line {frame['line']}"
    return found


class UnusableWorkerError(HostError):
    """No TaskManager can start in Spark's Python workers: their Python is not the driver's, or lacks this package."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"TaskManagers cannot run in Spark's Python workers: {cause}; set PYSPARK_PYTHON (or spark.pyspark.python) "
            "to an interpreter that has the driver's Python and packages on every host"
        )


class UnusableInterpreterError(HostError):
    """TaskManagers of a job cannot run with the interpreter that the job names."""

    def __init__(self, interpreter: str, host: str, cause: str) -> None:
        place = f" on host {host}" if host else ""
        super().__init__(
            f"TaskManagers of the job cannot run with its python.executable, '{interpreter}'{place}: {cause}; set an "
            f"interpreter that every host of the cluster has, of the driver's version of Python, with Headrace, "
            f"PySpark and PyArrow in the driver's versions"
        )
        self.interpreter, self.host = interpreter, host


class UnusableEnvironmentError(HostError):
    """TaskManagers of a job cannot run in the Python environment that it brings, on any host."""

    beginning: ClassVar[str] = _NO_ENVIRONMENT

    @classmethod
    def here(cls, cause: str) -> Self:
        """Return the error for this host."""
        return cls(f"{cls.beginning} on host {socket.gethostname()}: {cause}")

    def as_result(self) -> str:
        """Return the error as the result of a Spark task, as Spark would rerun a task that raises an error."""
        return f"{self}{_END_OF_ERROR}"


class EnvironmentNotMadeError(UnusableEnvironmentError):
    """A host could not create a job's Python environment; it, or another host, may be able to do so later."""

    recoverable = True
    beginning = _ENVIRONMENT_NOT_MADE


def environment_error_in(result: bytes) -> str | None:
    """Return the text of an UnusableEnvironmentError in the pickled result of a task, or None; unpickles nothing."""
    _, found, rest = result.decode(errors="replace").partition(_NO_ENVIRONMENT)
    return found + rest.partition(_END_OF_ERROR)[0] if found else None


class WorkerRefusedError(HostError):
    """A TaskManager refused a setting at its start, such as a port that is in use."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"a TaskManager cannot start: {cause}")


def unusable_worker(diagnostics: str) -> HostError | None:
    """Return the error for a worker whose replacement would fail in the same way, or None for another end."""
    first_line = diagnostics.split("\n", 1)[0]
    if _VERSION_MISMATCH in diagnostics:
        return UnusableWorkerError(_sentence_of(diagnostics, "Python in worker"))
    if _NO_PACKAGE.search(first_line):
        return UnusableWorkerError(first_line)
    refused = _OWN_SETTINGS.match(first_line)
    if refused is not None:
        return WorkerRefusedError(refused.group("cause"))
    return None


def unusable_interpreter(diagnostics: str, interpreter: str) -> HostError | None:
    """Return the error for a worker that a job's interpreter cannot run, or None for another end."""
    first_line = diagnostics.split("\n", 1)[0]
    not_run = _NOT_RUN.search(diagnostics)
    missing = _NO_PACKAGE.search(diagnostics)
    if diagnostics.startswith(_ENVIRONMENT_NOT_MADE):
        return EnvironmentNotMadeError(diagnostics)
    if diagnostics.startswith(_NO_ENVIRONMENT):
        return UnusableEnvironmentError(diagnostics)
    if not_run is not None:
        cause = not_run["cause"]
    elif _VERSION_MISMATCH in diagnostics:
        cause = _sentence_of(diagnostics, "Python in worker")
    elif missing is not None:
        cause = f"the interpreter has no package '{missing['package']}'"
    elif (refused := _OWN_SETTINGS.match(first_line)) is not None:
        return WorkerRefusedError(refused["cause"])
    else:
        return None
    host = _TASK_HOST.search(diagnostics)
    return UnusableInterpreterError(interpreter, "" if host is None else host["host"], cause)


def _sentence_of(text: str, beginning: str) -> str:
    start = text.find(beginning)
    return text[max(0, start) :].split("\n", 1)[0].strip()
