"""What the answer to a registration means to the retry engine, the same for all three handshakes."""

from headrace.gateways.messages import RegistrationRefused, RegistrationRejected
from headrace.rpc.registration_policy import Refused, Rejected


def interpret(response: object) -> Refused | Rejected | None:
    """Refused, Rejected, or None where the registration was accepted."""
    match response:
        case RegistrationRefused(reason):
            return Refused(reason)
        case RegistrationRejected(reason):
            return Rejected(reason)
        case _:
            return None
