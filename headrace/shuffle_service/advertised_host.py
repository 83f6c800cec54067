"""Under which name clusters reach a shuffle service.

Source: Flink's `taskmanager.host` beside `taskmanager.bind-host`.
"""

import ipaddress
import socket

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.tls import is_loopback
from headrace.shuffle_service.options import HOST


def advertised_host(settings: Settings, bind_host: str) -> str:
    """Return what was set, else `bind_host`, or where that is every address the machine's own name.

    Asks the resolver for that name. ConfigurationError where others could not get here by it.
    """
    given = settings.get_option(HOST)
    if given:
        if _is_every_address(given):
            raise ConfigurationError(HOST.key, given, "nobody can reach this host by it")
        return given
    if not _is_every_address(bind_host):
        return bind_host
    name = socket.gethostname()
    if not _leads_here(name):
        raise ConfigurationError(
            HOST.key,
            None,
            f"it listens at {bind_host}, by which nobody can reach this host, and neither can they by its name "
            f"'{name}': give the name or address under which its clusters know it",
        )
    return name


def _is_every_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return not host


def _leads_here(name: str) -> bool:
    """Whether a name has an address, and not only ones that lead every host to itself."""
    try:
        found = socket.getaddrinfo(name, None)
    except OSError:
        return False
    return any(not is_loopback(str(each[4][0])) for each in found)
