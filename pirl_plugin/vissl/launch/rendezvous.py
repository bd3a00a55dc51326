"""How ranks find each other: on loopback alone for one node, on a checked port for several."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.distributed import TCPStore
    from vissl.config import AttrDict

_STORE = "PIRL_PLUGIN_STORE"  # tells ranks that the launcher keeps the store at this address


@contextlib.contextmanager
def rendezvous(config: AttrDict, node_id: int, timeout_minutes: float) -> Iterator[None]:
    """Prepare the rendezvous of a run, and set ``config.DISTRIBUTED.RUN_ID`` meanwhile.

    One node gets a store that this process keeps, whatever its ``RUN_ID``: bound before any rank
    starts, so that no other process can take its port, and to loopback alone.

    Args:
        config: the host's.
        node_id: of this node.
        timeout_minutes: how long ranks wait for each other.

    Raises:
        SystemExit: the port that ``RUN_ID`` names is in use on this, the first, node.
    """
    distributed = config.DISTRIBUTED
    before = {name: os.environ.get(name) for name in (_STORE, "GLOO_SOCKET_IFNAME")}
    run_id, store = distributed.RUN_ID, None
    try:
        if distributed.NUM_NODES == 1 and distributed.INIT_METHOD == "tcp":
            store, port = loopback_store(timeout_minutes)
            distributed.RUN_ID = f"127.0.0.1:{port}"
            os.environ[_STORE] = distributed.RUN_ID
            _prefer_interface("127.0.0.1")
        elif distributed.NUM_NODES > 1 and distributed.INIT_METHOD == "tcp":
            host, _, number = run_id.rpartition(":")
            check_port(config, node_id)
            _prefer_interface(_address_towards(host, int(number)))
        yield
    finally:
        distributed.RUN_ID = run_id
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        del store


def loopback_store(timeout_minutes: float) -> tuple[TCPStore, int]:
    """A store for one node's ranks, which listens on loopback, and its port."""
    from torch.distributed import TCPStore

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.bind(("127.0.0.1", 0))
    listening.listen(socket.SOMAXCONN)
    port: int = listening.getsockname()[1]
    store = TCPStore(
        "127.0.0.1",
        port,
        None,
        True,
        timeout=datetime.timedelta(minutes=timeout_minutes),
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )
    return store, port


def check_port(config: AttrDict, node_id: int) -> None:
    """Refuse a port at which several nodes are to meet, and that another process listens on.

    Raises:
        SystemExit: it is in use on this, the first, node.
    """
    host, _, number = str(config.DISTRIBUTED.RUN_ID).rpartition(":")
    if config.DISTRIBUTED.NUM_NODES == 1 or node_id != 0 or not number.isdigit():
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", int(number)))
        except OSError:
            raise SystemExit(
                f"pirl_plugin: config.DISTRIBUTED.RUN_ID = {host}:{number}: expected a free port "
                f"on the first node, and another process listens on it; choose another port, or "
                f"end that process"
            ) from None


def initialise_with_timeout(timeout_minutes: float) -> None:
    """Have ``torch.distributed.init_process_group`` of this process take our store and time-out.

    The host passes neither. Without, gloo waits half an hour for a rank that is gone.
    """
    from torch import distributed

    original = getattr(
        distributed.init_process_group, "pirl_plugin_original", distributed.init_process_group
    )
    timeout = datetime.timedelta(minutes=timeout_minutes)

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("timeout", timeout)
        address = os.environ.get(_STORE)
        if address and kwargs.get("init_method") == f"tcp://{address}":
            host, _, port = address.rpartition(":")
            del kwargs["init_method"]
            kwargs["store"] = distributed.TCPStore(
                host, int(port), None, False, timeout=timeout, wait_for_workers=False
            )
        original(*args, **kwargs)

    init_process_group.pirl_plugin_original = original  # type: ignore[attr-defined]
    distributed.init_process_group = init_process_group


def _prefer_interface(address: str | None) -> None:
    """Have gloo use the interface of an address, unless the user has named one.

    By itself it takes the one that the host name resolves to, which may be 127.0.1.1.
    """
    name = interface_of(address) if address else None
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _address_towards(host: str, port: int) -> str | None:
    """This node's own address on the way to another; no packet is sent."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(
            host, port, socket.AF_INET, socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def interface_of(address: str) -> str | None:
    """Name of the network interface that has an IPv4 address; None if that cannot be found out."""
    try:
        import fcntl
    except ImportError:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):
                found = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return None
