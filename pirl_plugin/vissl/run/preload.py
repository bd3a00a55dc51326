"""Preload modules in multiprocessing's fork server, so that loader workers start quickly."""

import gc
import os
import signal

from pirl_plugin.system.watcher import STOPPING

_SERVER = os.getpid()


def _prepare_worker() -> None:
    """Let a forked process end with this server."""
    _prctl_pr_set_pdeathsig(signal.SIGKILL)  # a worker stuck in a read notices nothing
    if os.getppid() != _SERVER:  # the server ended before that call, so no signal will come
        os._exit(1)


# On a signal to the process group, ranks finish their step and save. Without this server, or a
# worker that is just starting, they could not read the step's images.
for number in STOPPING:
    signal.signal(number, signal.SIG_IGN)
gc.disable()  # faster imports

from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]  # noqa: E402

from pirl_plugin.vissl.run.rank import RANK_PROCESS  # noqa: E402

if RANK_PROCESS in os.environ:
    # End with the rank, also while VISSL is imported: a worker watches only its parent, which is
    # this server.
    _prctl_pr_set_pdeathsig(signal.SIGKILL)
    # Compare process IDs: in a container, a rank may be process 1, which also adopts orphans.
    if os.environ[RANK_PROCESS] != str(os.getppid()):
        os._exit(1)

import vissl.utils.distributed_launcher  # noqa: E402, F401  (it imports all of VISSL)

import pirl_plugin.vissl.adapters.dataset  # noqa: E402
import pirl_plugin.vissl.adapters.images  # noqa: E402, F401
from pirl_plugin.views.base import warm_up  # noqa: E402

os.register_at_fork(after_in_child=_prepare_worker)
warm_up()  # compiled once for all workers
gc.freeze()  # imported objects stay, and share their memory with the workers
gc.enable()
