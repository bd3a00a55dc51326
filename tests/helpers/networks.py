"""Two nodes on this machine: network namespaces with addresses of their own and a link between."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Nodes:
    """``names`` of two namespaces, and their ``addresses``."""

    def __init__(self) -> None:
        number = uuid.uuid4().hex[:6]
        self.names = (f"pirl{number}a", f"pirl{number}b")
        self.addresses = ("10.213.7.1", "10.213.7.2")

    def command(self, node: int) -> list[str]:
        """What a command begins with to run on a node."""
        return ["ip", "netns", "exec", self.names[node]]

    def link(self, state: str) -> None:
        """Cut the link (``down``) or connect it again (``up``)."""
        _ip("-n", self.names[1], "link", "set", "pirl0", state)

    def make(self) -> None:
        """Make namespaces, link and addresses."""
        for name in self.names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        first, second = self.names
        _ip(
            "-n", first, "link", "add", "pirl0", "type", "veth",
            "peer", "name", "pirl0", "netns", second,
        )  # fmt: skip
        for name, address in zip(self.names, self.addresses, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "pirl0")
            _ip("-n", name, "link", "set", "pirl0", "up")

    def remove(self) -> None:
        """Remove them, as far as they were made."""
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)


def why_not() -> str | None:
    """Why namespaces cannot be made here; None if they can."""
    if shutil.which("ip") is None:
        return "there is no ip command: install iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with nodes():
            return None
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr}"


@contextlib.contextmanager
def nodes() -> Iterator[Nodes]:
    """Two nodes for as long as it lasts."""
    made = Nodes()
    try:
        made.make()
        yield made
    finally:
        made.remove()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
