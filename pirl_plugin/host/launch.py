"""Around the host's launcher: check before anything is spawned, say in one line what runs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pirl_plugin.host.checkpoints import check_checkpoint, say_misfit
from pirl_plugin.host.combinations import check_combination
from pirl_plugin.host.data_checks import check_classes, check_data
from pirl_plugin.host.evaluation_mends import remove_old_features

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TESTED_HOSTS = ("0.1.6",)  # the last wheel, and git main, which calls itself the same


def guard_launcher(module: Any) -> None:
    """Wrap both launchers, and hand other processes what opens the door there before all else."""
    from pirl_plugin.host import worker

    ours = {
        "_distributed_worker": worker.distributed_worker,
        "_ResumableSlurmJob": worker.SlurmJob,
    }
    module.pirl_plugin_originals = {name: getattr(module, name) for name in ours}
    for name, replacement in ours.items():
        setattr(module, name, replacement)
    checks = (check_combination, check_data, check_classes, check_checkpoint)
    module.launch_distributed = _guarded(module.launch_distributed, (check_machine, *checks))
    on_slurm = module.launch_distributed_on_slurm
    module.launch_distributed_on_slurm = _guarded(on_slurm, checks)


def _guarded(launch: Any, checks: Sequence[Callable[[Any], None]]) -> Any:
    @functools.wraps(launch)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        config = kwargs.get("cfg", args[0] if args else None)
        print(banner(), flush=True)
        for check in checks:
            check(config)
        if kwargs.get("engine_name") == "extract_features":
            remove_old_features(config)
        try:
            return launch(*args, **kwargs)
        except Exception as error:
            say_misfit(error)
            raise

    return guarded


def banner() -> str:
    """The line at the start of a run: versions, and what was mended for them."""
    import vissl

    from pirl_plugin import __version__
    from pirl_plugin.host.mends import MENDED

    version = getattr(vissl, "__version__", "of unknown version")
    line = f"pirl_plugin {__version__} on VISSL {version}; mended: {', '.join(MENDED) or 'nothing'}"
    if version not in TESTED_HOSTS:
        line += (
            f"\npirl_plugin: VISSL {version} is not a host this plugin was tested with "
            f"({', '.join(TESTED_HOSTS)} and git main); expect trouble, or "
            f"pip install --no-deps vissl==0.1.6"
        )
    return line


def check_machine(config: Any) -> None:
    """Refuse GPUs that are not here, and several nodes that cannot find each other.

    Raises:
        SystemExit: what was found, what was expected and how to mend it.
    """
    import torch

    distributed = config.DISTRIBUTED
    wanted, found = distributed.NUM_PROC_PER_NODE, torch.cuda.device_count()
    if distributed.NUM_NODES > 1 and distributed.RUN_ID == "auto":
        raise SystemExit(
            f"pirl_plugin: {distributed.NUM_NODES} nodes need a place to meet: on each give "
            f"config.DISTRIBUTED.RUN_ID=HOST:PORT of the first, and node_id=0, 1, …; or let SLURM "
            f"do it, config.SLURM.USE_SLURM=true; or take one, +config/pirl/machines=1gpu"
        )
    if config.MACHINE.DEVICE == "gpu" and wanted > found:
        raise SystemExit(
            f"pirl_plugin: {wanted} GPUs asked for, {found} found: add +config/pirl/machines=cpu "
            f"or 1gpu, or set config.DISTRIBUTED.NUM_PROC_PER_NODE={max(found, 1)}"
        )
