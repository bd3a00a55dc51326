"""Preload modules in multiprocessing's fork server, so that loader workers start at once."""

import gc
import os
import signal

from pirl_plugin.vissl.import_hook import finder
from pirl_plugin.vissl.resume.signals import STOPPING


def _handle(handler: signal.Handlers) -> None:
    for number in STOPPING:
        signal.signal(number, handler)


# Ranks save at a signal to the whole process group. Without this server, their workers would end
# first. Forked processes get the default handlers back.
_handle(signal.SIG_IGN)
os.register_at_fork(after_in_child=lambda: _handle(signal.SIG_DFL))
gc.disable()
finder.install()

import vissl.utils.distributed_launcher  # noqa: E402, F401  (it imports all of the host)
from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]  # noqa: E402

import pirl_plugin.vissl.adapters.data  # noqa: E402, F401
from pirl_plugin.views.kernels import warm_up  # noqa: E402
from pirl_plugin.vissl.launch import RANK_PROCESS  # noqa: E402

if RANK_PROCESS in os.environ:
    # End with the rank: a worker watches only its parent, which is this server.
    _prctl_pr_set_pdeathsig(signal.SIGKILL)
    if os.environ[RANK_PROCESS] != str(os.getppid()):
        os._exit(1)
warm_up()  # compiled once for all workers
gc.freeze()  # what is imported stays, and its memory is shared with the workers
gc.enable()
