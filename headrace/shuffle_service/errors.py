"""The errors of the remote shuffle service, in addition to those of the exchange.

HostError
+- DirectoryInUseError           another service runs in the directory

NetworkError
+- ShuffleServiceLostError       the service cannot be reached
+- PushNotAdmittedError          it did not answer whether a result may be pushed
+- PushRefusedError              it refused a result
+- PushStalledError              it stored no data in time
"""

from headrace.core.errors import ErrorDomain, HostError
from headrace.network.errors import NetworkError


class DirectoryInUseError(HostError):
    """Another shuffle service runs in the directory. `holder`: its process, empty if it is not known yet."""

    def __init__(self, directory: str, holder: str) -> None:
        process = f", process {holder}" if holder else ""
        super().__init__(
            f"another shuffle service{process} keeps its results in {directory}: use that one, end it first, or give "
            "this one a directory of its own"
        )
        self.directory = directory
        self.holder = holder


class ShuffleServiceLostError(NetworkError):
    """The remote shuffle service cannot be reached: it must be restarted, or its results must be produced again."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(
            f"the shuffle service {peer} is lost ({reason}): start it again in its directory, see "
            "'shuffle-service.address'"
        )
        self.peer = peer
        self.reason = reason


class PushNotAdmittedError(NetworkError):
    """The remote shuffle service did not answer in time whether a result may be pushed."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, peer: str, timeout_s: float) -> None:
        super().__init__(
            f"the shuffle service {peer} did not answer within {timeout_s:g} s whether a result may be pushed: the "
            f"service is overloaded or hangs; see 'shuffle-service.admission-timeout'"
        )
        self.peer = peer
        self.timeout_s = timeout_s


class PushStalledError(NetworkError):
    """The remote shuffle service did not store pushed data in time."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, peer: str, timeout_s: float, what: str) -> None:
        super().__init__(
            f"the shuffle service {peer} did not {what} within {timeout_s:g} s: the disk is too slow or the service "
            f"hangs; see "
            "'shuffle-service.push-timeout'"
        )
        self.peer = peer
        self.timeout_s = timeout_s


class PushRefusedError(NetworkError):
    """The remote shuffle service refused a result, or a part of it."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"the shuffle service {peer} refused a result: {reason}")
        self.peer = peer
        self.reason = reason
