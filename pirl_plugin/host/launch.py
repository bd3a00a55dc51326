"""Around the host's launcher: check before anything is spawned, say in one line what runs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pirl_plugin.host.combinations import check_combination

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HOSTS_DISK = ("disk_folder", "disk_filelist")  # data sources that read what a path names
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
    checks = (check_combination, check_data)
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
        return launch(*args, **kwargs)

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


def check_data(config: Any) -> None:
    """Refuse, in one sentence and before any process is started, data that cannot be trained on.

    Raises:
        SystemExit: what was found, what was expected and how to mend it.
    """
    from vissl.data.dataset_catalog import VisslDatasetCatalog, get_data_files

    from pirl_plugin.data.source import check_source

    splits = ["TRAIN"] if not config.TEST_ONLY else []
    splits += ["TEST"] if config.TEST_MODEL else []
    for split in splits:
        data = config.DATA[split]
        sources = data.DATA_SOURCES
        if not any(s in _HOSTS_DISK or s.startswith("pirl_disk_") for s in sources):
            continue
        unknown = [n for n in data.DATASET_NAMES if not VisslDatasetCatalog.has_data(n)]
        if not data.DATA_PATHS and unknown:
            raise SystemExit(
                f"pirl_plugin: no data for {split}: config.DATA.{split}.DATA_PATHS is empty and no "
                f"catalog lists '{unknown[0]}'. Name a folder of images: "
                f"config.DATA.{split}.DATA_PATHS=[DIR]; or all data sets at once, with "
                f"PIRL_DATASETS=DIR in the environment"
            )
        paths, _ = get_data_files(split, config.DATA)
        _check_named(split, data, paths)
        for source, path in zip(data.DATA_SOURCES, paths, strict=True):
            if not source.startswith("pirl_disk_"):
                continue
            try:
                check_source(config, source, path, split)
            except (OSError, ValueError) as error:
                raise SystemExit(f"pirl_plugin: {error}") from None


def _check_named(split: str, data: Any, paths: Sequence[Any]) -> None:
    """Refuse files that the host's own sources miss only when all is set up, or never miss."""
    from iopath.common.file_io import g_pathmgr

    told = f"config.DATA.{split}.DATA_PATHS" if data.DATA_PATHS else "the catalog of data sets"
    labels = f"config.DATA.{split}.LABEL_PATHS"
    named = [(told, *pair) for pair in zip(data.DATA_SOURCES, paths, strict=True)]
    named += [(labels, *pair) for pair in zip(data.LABEL_SOURCES, data.LABEL_PATHS, strict=False)]
    for where, source, path in named:
        if source in _HOSTS_DISK and isinstance(path, str) and not g_pathmgr.exists(path):
            raise SystemExit(
                f"pirl_plugin: {where} names '{path}', which is not a file or folder that exists"
            )
