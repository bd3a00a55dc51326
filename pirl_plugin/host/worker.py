"""What spawned ranks and SLURM jobs load first: it opens the door, then does the host's work.

The host hands other processes a function or a job of its own, which are found again by importing
VISSL; where ``.pth`` files are not processed (``pip install --target``, ``PYTHONPATH``) that import
would fail before anything of ours runs. The launcher hands over these instead.
"""

from __future__ import annotations

import multiprocessing
from typing import Any

from pirl_plugin.host import door

door.install()


def distributed_worker(*args: Any, **kwargs: Any) -> Any:
    """The host's ``_distributed_worker``: one rank of a run; the second argument is the config.

    The rank's data-loader workers fork from a server that has the host imported and our kernels
    compiled, instead of importing it anew (3.6 s, 855 MB) in each worker, each epoch.
    """
    preload = ["pirl_plugin.host.preload"]
    if uses_our_sources(kwargs["cfg"] if "cfg" in kwargs else args[1]):
        preload.append("pirl_plugin.host.preload_views")
    multiprocessing.set_forkserver_preload(preload)
    return _launcher().pirl_plugin_originals["_distributed_worker"](*args, **kwargs)


class SlurmJob:
    """The host's ``_ResumableSlurmJob``: one node of a run, requeued when it is preempted."""

    def __init__(self, engine_name: str, config: Any) -> None:
        self.engine_name = engine_name
        self.config = config

    def __call__(self) -> Any:
        """Run the node's part."""
        job = _launcher().pirl_plugin_originals["_ResumableSlurmJob"]
        return job(engine_name=self.engine_name, config=self.config)()

    def checkpoint(self) -> Any:
        """What submitit submits again when SLURM takes the node away."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(SlurmJob(self.engine_name, self.config))


def uses_our_sources(config: Any) -> bool:
    """Whether a split of ``config.DATA`` is read by a data source of ours."""
    splits = [config.DATA.get(name) or {} for name in ("TRAIN", "TEST")]
    sources = [source for split in splits for source in split.get("DATA_SOURCES") or []]
    return any(source.startswith("pirl_disk_") for source in sources)


def _launcher() -> Any:
    from vissl.utils import distributed_launcher

    return distributed_launcher
