"""Imported by the fork server of a run of ours: it ends with its rank, and its workers with it.

A worker holds the pipe by which the server would notice that the rank is gone, and looks for its
parent, the server, itself: without this both outlive a rank that was killed, for ever.
"""

import os
import signal

from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]

from pirl_plugin.utils.processes import RANK_PROCESS

_prctl_pr_set_pdeathsig(signal.SIGKILL)  # Linux only; nothing elsewhere
if os.environ.get(RANK_PROCESS, "") not in ("", str(os.getppid())):  # the rank has ended already
    os._exit(1)
