"""Imported once by multiprocessing's fork server, so that data-loader workers start at once."""

import os
import signal

from pirl_plugin.vissl.import_hook import finder

finder.install()

import vissl.utils.distributed_launcher  # noqa: E402, F401  (the launcher imports all of the host)

from pirl_plugin.utils.interrupts import STOPPING  # noqa: E402


def _handle(handler: signal.Handlers) -> None:
    for number in STOPPING:
        signal.signal(number, handler)


# Stop signals, sent to all processes, are for the ranks. Without this server their loader workers
# would end before the ranks have saved; what it forks begins with the usual handlers again.
_handle(signal.SIG_IGN)
os.register_at_fork(after_in_child=lambda: _handle(signal.SIG_DFL))
