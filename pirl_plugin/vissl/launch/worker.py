"""What spawned ranks and SLURM jobs load first: the import hook, then the host's work.

The host hands other processes a function or a job of its own, which are found again by importing
VISSL; where ``.pth`` files are not processed (``pip install --target``, ``PYTHONPATH``) that import
would fail before anything of ours runs. The launcher hands over these instead.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.images.names import SOURCES
from pirl_plugin.vissl.import_hook import finder

finder.install()

from pirl_plugin.utils.our_configs import is_ours  # noqa: E402
from pirl_plugin.utils.processes import RANK_PROCESS  # noqa: E402
from pirl_plugin.vissl.launch.newest import Newest, newest_checkpoint  # noqa: E402

if TYPE_CHECKING:
    from types import ModuleType

    from submitit.helpers import DelayedSubmission
    from vissl.config import AttrDict


def distributed_worker(*args: Any, **kwargs: Any) -> object:
    """The host's ``_distributed_worker``: one rank of a run; the second argument is the config.

    The rank's data-loader workers fork from a server that has the host imported and our kernels
    compiled, instead of importing it again (3.6 s, 855 MB) in each worker, each epoch.

    Raises:
        RankError: a rank of ours failed; says in one sentence why.
    """
    local_rank, config, node_id = (
        kwargs[name] if name in kwargs else args[i]
        for i, name in enumerate(("local_rank", "cfg", "node_id"))
    )
    preload = ["pirl_plugin.vissl.launch.preload"]
    if uses_our_sources(config):
        preload.append("pirl_plugin.vissl.launch.preload_views")
    if is_ours(config):
        preload.append("pirl_plugin.vissl.launch.preload_watch")
        os.environ[RANK_PROCESS] = str(os.getpid())
    multiprocessing.set_forkserver_preload(preload)
    run = _launcher().pirl_plugin_originals["_distributed_worker"]
    if not is_ours(config):
        return run(*args, **kwargs)
    from pirl_plugin.vissl.launch.rank import run_rank

    rank = config.DISTRIBUTED.NUM_PROC_PER_NODE * node_id + local_rank
    return run_rank(functools.partial(run, *args, **kwargs), config, rank)


class SlurmJob:
    """The host's ``_ResumableSlurmJob``: one node of a run, requeued when it is preempted."""

    def __init__(self, engine_name: str, config: AttrDict) -> None:
        self.engine_name = engine_name
        self.config = config
        self._began_with: Newest | None = None

    def __call__(self) -> object:
        """Run the node's part."""
        self._began_with = newest_checkpoint(Path(self.config.CHECKPOINT.DIR))
        job = _launcher().pirl_plugin_originals["_ResumableSlurmJob"]
        return job(engine_name=self.engine_name, config=self.config)()

    def checkpoint(self) -> DelayedSubmission:
        """What submitit submits again when SLURM takes the node away.

        Of a run of ours, the ranks are ended first: submitit would leave them training. A run that
        has saved something since it began is not any closer to its last time-out.
        """
        if not is_ours(self.config):
            from submitit.helpers import DelayedSubmission

            return DelayedSubmission(SlurmJob(self.engine_name, self.config))
        from pirl_plugin.vissl.launch import ranks
        from pirl_plugin.vissl.launch.resubmission import Resubmission

        ranks.end_running()
        progressed = newest_checkpoint(Path(self.config.CHECKPOINT.DIR)) != self._began_with
        return Resubmission(SlurmJob(self.engine_name, self.config), progressed)


def uses_our_sources(config: AttrDict) -> bool:
    """Whether a split of ``config.DATA`` is read by a data source of ours."""
    splits = [config.DATA.get(name) or {} for name in ("TRAIN", "TEST")]
    sources = [source for split in splits for source in split.get("DATA_SOURCES") or []]
    return any(source in SOURCES for source in sources)


def _launcher() -> ModuleType:
    from vissl.utils import distributed_launcher

    return distributed_launcher
