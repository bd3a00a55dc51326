"""The network interface between ranks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vissl.config import AttrDict

_SIOCGIFADDR = 0x8915  # Linux: address of an interface
_ELSEWHERE = "198.51.100.1"  # documentation address (RFC 5737); nothing is sent to it


def choose_interface(config: AttrDict) -> None:
    """Set gloo's and NCCL's interface, unless the user has set one.

    By default, gloo takes the interface of the host name. On Debian and Ubuntu its address is
    127.0.1.1, and several nodes would wait forever. One node gets the loopback interface.
    """
    if config.DISTRIBUTED.NUM_NODES == 1:
        name = _name_of("127.0.0.1")
        variables = ["GLOO_SOCKET_IFNAME"]
    else:
        host, _, _port = str(config.DISTRIBUTED.RUN_ID).rpartition(":")
        name = interface_towards(host)
        variables = ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"]
    if name is not None:
        for variable in variables:
            os.environ.setdefault(variable, name)


def interface_towards(host: str) -> str | None:
    """Return the interface of the route to a host, or of the default route; never loopback."""
    for target in (host, _ELSEWHERE):
        with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            address = probe.getsockname()[0]
            if not address.startswith("127."):
                return _name_of(address)
    return None


def _name_of(address: str) -> str | None:
    """Return the interface that has an IPv4 address."""
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
            # struct ifreq: the name of the interface; the answer has its address at bytes 20 to 23.
            request = struct.pack("256s", name.encode())
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
