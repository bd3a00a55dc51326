import datetime
import socket
import threading

import pytest
from torch.distributed import TCPStore
from vissl.config import AttrDict

from pirl_plugin.vissl.launch.rendezvous import (
    check_port,
    interface_of,
    loopback_store,
    rendezvous,
)


def listening(port):
    """Addresses that a port is listened on, as the kernel writes them."""
    found = []
    for table in ("tcp", "tcp6"):
        for line in open(f"/proc/net/{table}").read().splitlines()[1:]:
            address, state = line.split()[1], line.split()[3]
            if address.endswith(f":{port:04X}") and state == "0A":
                found.append(address.partition(":")[0])
    return found


def config(nodes=1, run_id="auto"):
    section = {"NUM_NODES": nodes, "INIT_METHOD": "tcp", "RUN_ID": run_id, "NUM_PROC_PER_NODE": 1}
    return AttrDict({"DISTRIBUTED": section})


def test_store__of_one_node_listens_on_loopback_alone():
    store, port = loopback_store(0.1)
    assert listening(port) == ["0100007F"]
    client = TCPStore(
        "127.0.0.1", port, None, False, timeout=datetime.timedelta(seconds=5),
        wait_for_workers=False,
    )  # fmt: skip
    client.set("key", "value")
    assert store.get("key") == b"value"


def test_rendezvous__leaves_the_configuration_as_it_was(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    one = config()
    with rendezvous(one, 0, 0.1):
        assert one.DISTRIBUTED.RUN_ID.startswith("127.0.0.1:")
        assert interface_of("127.0.0.1") == "lo"
    assert one.DISTRIBUTED.RUN_ID == "auto"


def test_port__in_use_is_refused_on_the_first_node_alone():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run_id = f"127.0.0.1:{port}"
        with pytest.raises(SystemExit, match=rf"RUN_ID = {run_id}: expected a free port"):
            with rendezvous(config(2, run_id), 0, 0.1):
                pass
        with rendezvous(config(2, run_id), 1, 0.1):
            pass
    check_port(config(2, run_id), 0)  # which is free again


def test_rendezvous__works_outside_the_main_thread():
    done = []

    def use():
        with rendezvous(config(), 0, 0.1):
            done.append(True)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert done
