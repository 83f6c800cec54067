"""Errors of clients of the REST endpoint.

RestError
+- RestUnreachableError     no server answers at the address, or its answer is unusable
|  +- ClusterEndedError     the cluster has ended
+- RestRefusedError         the cluster answered with an error
|  +- UnauthorizedError     the cluster does not accept the token
+- OperationFailedError     an operation, such as a savepoint, was started and failed
+- OperationLateError       an operation was started, and did not end within the client's timeout
+- ConnectionFileError      a connection file is damaged, or users other than its owner had access
+- HomeFolderError          the user's folder of Headrace cannot be made or written
+- NoClusterError           no connection file leads to a running cluster
+- NoSuchClusterError       no running cluster has this name
+- SeveralClustersError     several clusters run, and the user named none
+- ClusterRestartingError   the cluster's driver is gone, and is being restarted
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.error_text import without_controls
from headrace.core.errors import ErrorDomain, HeadraceError

if TYPE_CHECKING:
    from headrace.rest.home.supervisions import Supervision


class RestError(HeadraceError):
    """Base of the errors of this file."""

    domain, recoverable = ErrorDomain.EXTERNAL, False


class RestUnreachableError(RestError):
    """No connection to the cluster, or the connection broke before the answer was complete."""

    def __init__(
        self, address: str, reason: str, attempts: int = 1, *, may_have_arrived: bool = False
    ) -> None:
        """Create the error; `may_have_arrived`: the request was sent, so that the cluster may have executed it."""
        tried = "" if attempts == 1 else f" after {attempts} attempts"
        super().__init__(
            f"no cluster answers at {address}{tried}: {reason}; 'headrace list' without -m looks for the clusters of "
            "this machine, and 'headrace run' prints the address of its own"
        )
        self.address = address
        self.attempts = attempts
        self.may_have_arrived = may_have_arrived


class ClusterEndedError(RestUnreachableError):
    """The cluster has ended: its connection file is gone, or its process is."""

    def __init__(self, address: str) -> None:
        super().__init__(address, "it has ended")


class RestRefusedError(RestError):
    """An answer with an error: its status, and the texts of its field `errors`."""

    def __init__(self, method: str, path: str, status: int, errors: Sequence[str]) -> None:
        strings = [one for one in errors if one.strip()] or ["without a reason"]
        super().__init__(f"{cause_line(strings)} (status {status} of {method} {path})")
        self.path = path
        self.status = status
        self.errors = tuple(strings)


class UnauthorizedError(RestRefusedError):
    """The cluster requires a token, and the client sent another one or none."""

    def __init__(self, method: str, path: str, status: int, address: str, token_from: str) -> None:
        sent = (
            f"the token from {token_from} is not the token of"
            if token_from
            else "no token was sent, but one is needed for"
        )
        place = (
            "it is in the connection file that the cluster wrote on its own machine, <home>/clusters/<port>.json with "
            "HEADRACE_HOME or ~/.headrace as home"
        )
        advice = (
            "unset HEADRACE_TOKEN, which overrides files, if that file is in your own folder, or correct it"
            if token_from == "HEADRACE_TOKEN"
            else "copy that file to the same folder here, or set HEADRACE_TOKEN, which overrides files"
        )
        text = f"{sent} the cluster at {address}: {place}; {advice}"
        super().__init__(method, path, status, [text])
        self.token_from = token_from


class OperationFailedError(RestError):
    """An asynchronous operation has failed."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause_line([cause]))
        self.cause = cause


class OperationLateError(RestError):
    """An asynchronous operation continues in the cluster, but its client no longer waits for it."""

    def __init__(self, request_id: str, waited_s: float, results_path: str, key: str) -> None:
        super().__init__(
            f"there is no result after {waited_s:g} s; the operation continues in the cluster: request "
            f"{results_path} for the result, or wait longer with -D {key}='10 min'"
        )
        self.request_id = request_id


class ConnectionFileError(RestError):
    """A connection file that is not used, and not deleted either."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"the connection file {file} is not used: {reason}")
        self.file = file
        self.reason = reason


class HomeFolderError(RestError):
    """The folder for logs and connection files cannot be created or written."""

    domain = ErrorDomain.USER

    def __init__(self, home: Path, variable: str, *, is_given: bool, cause: OSError) -> None:
        reason = cause.strerror or str(cause)
        what = variable if is_given else "the default folder"
        advice = "set it to" if is_given else f"set {variable} to"
        super().__init__(
            f"{what} ({home}) cannot be used for connection files and logs: {reason}; {advice} a folder in which "
            "this user alone may write"
        )
        self.home = home


class NoClusterError(RestError):
    """There is no connection file of a running cluster."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"no cluster of yours runs on this machine (there is no connection file in {folder}): start a job with "
            "'headrace run', or name a cluster with -m host:port"
        )
        self.folder = folder


class NoSuchClusterError(RestError):
    """No cluster of this machine has this name, or none is a session; `kind` is what was looked for."""

    def __init__(self, kind: str, name: str | None, names: Sequence[str]) -> None:
        called = "" if name is None else f" called '{name}'"
        there_is = f"; there is {', '.join(names)}" if names else ""
        hint = f"start one with 'headrace cluster start{'' if name is None else f' --name {name}'}'"
        super().__init__(
            f"no {kind} of yours{called} runs on this machine{there_is}: {hint}, or name a cluster elsewhere with "
            "-m host:port"
        )
        self.kind, self.name, self.names = kind, name, tuple(names)


class SeveralClustersError(RestError):
    """Several clusters run, and the client cannot know which one is meant."""

    def __init__(self, clusters: Sequence[str]) -> None:
        """Create the error; `clusters`: a line for each, with the option that selects it."""
        lines = "".join(f"\n  {one}" for one in clusters)
        super().__init__(f"{len(clusters)} clusters run on this machine: select one with -m{lines}")
        self.clusters = tuple(clusters)


_CLASS_PREFIXES = ("java.", "org.", "headrace.")


def cause_line(errors: Sequence[str]) -> str:
    """Return the most informative line: the first, or if that is the server's general one, the cause behind it.

    Names of Java and Headrace classes in front of it are removed.
    """
    said = without_controls("\n".join(errors))
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [
        line.removeprefix("<Exception on server side:").strip()
        for line in lines
        if line not in ("Internal server error.", "<Exception on server side:")
    ]
    line = next((one for one in telling if one), lines[0] if lines else "without a reason")
    name, colon, rest = line.partition(": ")
    while colon and rest and " " not in name and name.startswith(_CLASS_PREFIXES):
        line = rest
        name, colon, rest = line.partition(": ")
    return line


class ClusterRestartingError(RestError):
    """The requested cluster has no driver at the moment: its supervisor is restarting it."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, supervision: "Supervision") -> None:
        what = f"{supervision.kind} '{supervision.name}'"
        super().__init__(
            f"the driver of {what} is gone, and process {supervision.pid} is restarting it: wait until 'headrace "
            f"cluster list' shows its address, or end it with 'headrace cluster stop {supervision.name}'"
            + (
                f"; the reason is in the logs in {supervision.log_folder}"
                if supervision.log_folder
                else ""
            )
        )
        self.supervision = supervision
