"""The errors of the remote shuffle service, beside those of the exchange."""

from headrace.core.errors import ErrorDomain
from headrace.network.errors import NetworkError


class ShuffleServiceLostError(NetworkError):
    """The remote shuffle service cannot be reached: what it keeps must be made again, or it must come back."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(
            f"the shuffle service {peer} is lost ({reason}): start it again in its directory, see "
            "'shuffle-service.address'"
        )
        self.peer = peer
        self.reason = reason


class PushRefusedError(NetworkError):
    """The remote shuffle service does not take a result, or not all of it."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"the shuffle service {peer} refused a result: {reason}")
        self.peer = peer
        self.reason = reason
