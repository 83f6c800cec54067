"""Names of Services for the Python of a pod, which imports this module as its `sitecustomize`.

It takes the place of the cluster's DNS: names in the file that CLUSTER_HOSTS names, of the form of /etc/hosts, are
looked up there, and all others as before. JVMs read the same file (`jdk.net.hosts.file`).
"""

import functools
import os
import socket
import sys
from typing import Any

HOSTS_VARIABLE = "CLUSTER_HOSTS"
_getaddrinfo = socket.getaddrinfo
_connect = socket.socket.connect


def _address_of(host: Any) -> Any:
    with open(os.environ[HOSTS_VARIABLE], encoding="utf-8") as lines:
        for line in lines:
            address, *names = line.split()
            if host in names:
                return address
    return host


@functools.wraps(_getaddrinfo)
def _look_up(host: Any, *arguments: Any, **options: Any) -> Any:
    return _getaddrinfo(_address_of(host), *arguments, **options)


def _connect_to(self: socket.socket, address: Any) -> None:
    if self.family == socket.AF_INET:
        address = (_address_of(address[0]), *address[1:])
    _connect(self, address)


if HOSTS_VARIABLE in os.environ:
    socket.getaddrinfo = _look_up
    socket.socket.connect = _connect_to
    # Its loop asks the C library, which nothing here reaches.
    sys.modules["uvloop"] = None  # pyright: ignore[reportArgumentType]
