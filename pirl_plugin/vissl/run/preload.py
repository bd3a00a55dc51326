"""Preload modules in multiprocessing's fork server, so that loader workers start at once."""

import gc
import os
import signal

from pirl_plugin.system.watcher import STOPPING

_SERVER = os.getpid()


def _prepare_worker() -> None:
    """Let a forked process end with this server."""
    _prctl_pr_set_pdeathsig(signal.SIGKILL)  # a worker whose read hangs notices nothing
    if os.getppid() != _SERVER:  # it ended before that call: no signal will come
        os._exit(1)


# Ranks save at a signal to the whole process group. Without this server, or without a worker that
# is only starting, they could not read the step's images.
for number in STOPPING:
    signal.signal(number, signal.SIG_IGN)
gc.disable()  # imports then take less time

import vissl.utils.distributed_launcher  # noqa: E402, F401  (it imports all of the host)
from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]  # noqa: E402

import pirl_plugin.vissl.adapters.dataset  # noqa: E402
import pirl_plugin.vissl.adapters.images  # noqa: E402, F401
from pirl_plugin.views.base import warm_up  # noqa: E402
from pirl_plugin.vissl.run.rank import RANK_PROCESS  # noqa: E402

if RANK_PROCESS in os.environ:
    # End with the rank: a worker watches only its parent, which is this server.
    _prctl_pr_set_pdeathsig(signal.SIGKILL)
    # Compare numbers: in a container, a rank may be process 1, which adopts orphans elsewhere.
    if os.environ[RANK_PROCESS] != str(os.getppid()):
        os._exit(1)
os.register_at_fork(after_in_child=_prepare_worker)
warm_up()  # compiled once for all workers
gc.freeze()  # what is imported stays, and its memory is shared with the workers
gc.enable()
