"""Around the host's launcher: check before anything is spawned, say in one line what runs."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.host.checkpoints import check_checkpoint, say_misfit

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
    checks = (check_data, check_classes, check_checkpoint)
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


def check_data(config: Any) -> None:
    """Refuse, in one sentence and before any process is started, data that cannot be trained on.

    Raises:
        SystemExit: what was found, what was expected and how to mend it.
    """
    from vissl.data.dataset_catalog import VisslDatasetCatalog, get_data_files

    from pirl_plugin.data.source import check_source

    for split in _splits(config):
        data = config.DATA[split]
        for kind in ("DATA", "LABEL"):
            _check_named(kind, split, data)
        if not any(source.startswith("pirl_disk_") for source in data.DATA_SOURCES):
            continue
        unknown = [n for n in data.DATASET_NAMES if not VisslDatasetCatalog.has_data(n)]
        if not data.DATA_PATHS and unknown:
            raise SystemExit(
                f"pirl_plugin: no data for {split}: config.DATA.{split}.DATA_PATHS is empty and no "
                f"catalog lists '{unknown[0]}'. Name a folder of images: "
                f"config.DATA.{split}.DATA_PATHS=[DIR]"
            )
        paths, _ = get_data_files(split, config.DATA)
        for source, path in zip(data.DATA_SOURCES, paths, strict=True):
            if not source.startswith("pirl_disk_"):
                continue
            try:
                check_source(config, source, path, split)
            except (OSError, ValueError) as error:
                raise SystemExit(f"pirl_plugin: {error}") from None


def _check_named(kind: str, split: str, data: Any) -> None:
    """Refuse files that the host's own sources miss only when all is set up, or never miss."""
    for source, path in zip(data[f"{kind}_SOURCES"], data[f"{kind}_PATHS"], strict=False):
        named = isinstance(path, str) and "://" not in path
        if source.startswith("disk_") and named and not Path(path).exists():
            raise SystemExit(
                f"pirl_plugin: config.DATA.{split}.{kind}_PATHS names '{path}', which is not a "
                f"file or folder that exists"
            )


def remove_old_features(config: Any) -> None:
    """Remove what an extraction of one node would leave beside its own features.

    An earlier run in the same folder may have had more processes or images, and the host's tools
    read all files that are there.
    """
    folder = config.EXTRACT_FEATURES.OUTPUT_DIR or config.CHECKPOINT.DIR
    if config.DISTRIBUTED.NUM_NODES == 1:
        for file in Path(folder).glob("rank*_chunk*_*.npy"):
            file.unlink()


def check_classes(config: Any) -> None:
    """Refuse folders of classes that a classifier cannot be trained and tested on.

    Raises:
        SystemExit: the test images' classes are not the training images', so that their numbers
            would mean other classes; or there are more classes than ``MODEL.HEAD.NUM_CLASSES``.
    """
    from vissl.data.dataset_catalog import get_data_files

    from pirl_plugin.data.names import DISK_FOLDER
    from pirl_plugin.data.paths import class_folders

    classes = {}
    for split in _splits(config):
        if list(config.DATA[split].LABEL_SOURCES) == [DISK_FOLDER]:
            (folder,), _ = get_data_files(split, config.DATA)
            classes[split] = (folder, class_folders(folder))
    if len(classes) == 2:
        (train, trained), (test, tested) = classes["TRAIN"], classes["TEST"]
        odd = sorted(set(trained) ^ set(tested))
        if odd:
            raise SystemExit(
                f"pirl_plugin: {train} and {test} have {len(trained)} and {len(tested)} subfolders;"
                f" expected the same classes in both, and '{odd[0]}' is in one alone: an empty "
                f"subfolder will do"
            )
    expected = config.MODEL.HEAD.get("NUM_CLASSES")
    top = max(config.METERS.get("accuracy_list_meter", {}).get("topk_values") or [1])
    if expected is not None and expected < top and "accuracy_list_meter" in config.METERS.names:
        raise SystemExit(
            f"pirl_plugin: of {expected} classes there is no top-{top}: leave "
            f"config.MODEL.HEAD.NUM_CLASSES at {top} or more, or set "
            f"config.METERS.accuracy_list_meter.topk_values=[1]"
        )
    for folder, found in classes.values():
        if expected is not None and len(found) > expected:
            raise SystemExit(
                f"pirl_plugin: {folder} has {len(found)} subfolders, and the classifier tells "
                f"{expected} classes apart: set config.MODEL.HEAD.NUM_CLASSES={len(found)}"
            )


def _splits(config: Any) -> list[str]:
    splits = ["TRAIN"] if not config.TEST_ONLY else []
    return splits + (["TEST"] if config.TEST_MODEL else [])
