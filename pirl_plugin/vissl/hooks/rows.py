"""Keep the fingerprint of a run's images in the checkpoint, and compare it on resume."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from pirl_plugin.distributed import rank
from pirl_plugin.memory.row_paths import Changes, RelativePaths, hash_paths, match_paths
from pirl_plugin.settings import is_ours
from pirl_plugin.vissl.hooks.base import QuietHook, RunSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from classy_vision.losses import ClassyLoss
    from torch import Tensor
    from vissl.data.ssl_dataset import GenericSSLDataset
    from vissl.trainer.train_task import SelfSupervisionTask

    from pirl_plugin.bank import MemoryBank
    from pirl_plugin.loss import PIRLLoss


_KEYS = {"train": "path_hashes", "test": "test_path_hashes"}  # in the hook's state, by split


class ChangedDataError(RuntimeError):
    """The images are not those of the checkpoint."""

    stops_training = True


class RowPathsHook(QuietHook):
    """Saves a hash of each image's path with the host's checkpoint, as a hook's state."""

    def __init__(self) -> None:
        super().__init__()
        self._hashes: dict[str, Tensor] = {}

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Hash the paths, on the rank that writes checkpoints."""
        if rank() == 0:
            for split in task.datasets:
                paths = image_paths(task, split)
                if paths is not None:
                    self._hashes[_KEYS[split]] = hash_paths(paths)

    def get_classy_state(self) -> dict[str, Tensor]:
        """``path_hashes`` of the training images, ``test_path_hashes``: int64 (N,), where known."""
        return self._hashes

    def set_classy_state(self, state_dict: dict[str, Tensor]) -> None:
        """The state is of the data, which may have changed since: it is compared, never loaded."""


def image_paths(task: SelfSupervisionTask, split: str = "train") -> Sequence[str] | None:
    """Paths of a split's images relative to their folder; None for other data sources.

    With ``DATA_LIMIT`` = K ≥ 0 those of the K images that are taken, in the bank's order.
    """
    paths = source_paths(task, split)
    return paths and source_paths(task, split, limited_to(task.datasets[split]))


def source_paths(
    task: SelfSupervisionTask, split: str = "train", rows: Sequence[int] | None = None
) -> Sequence[str] | None:
    """:func:`image_paths` of some images of the source, or all, whatever ``DATA_LIMIT`` is."""
    from vissl.data.dataset_catalog import get_data_files

    sources = getattr(task.datasets[split], "data_objs", [])
    if not sources or not hasattr(sources[0], "get_image_paths"):
        return None
    (path, *_), _ = get_data_files(split.upper(), task.config.DATA)
    return paths_below(sources[0], path, rows)


def paths_below(images: Any, path: str, rows: Sequence[int] | None = None) -> Sequence[str]:
    """Paths of some images of a source, or all, relative to its folder, or to that of its list.

    Args:
        images: a data source of this plugin, or another that has ``get_image_paths``.
        path: what it reads.
        rows: of which images.
    """
    from pirl_plugin.vissl.adapters.source import PIRLDiskDataset

    ours = isinstance(images, PIRLDiskDataset)
    path_of = images.source.path_of if ours else images.get_image_paths().__getitem__
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    return RelativePaths(path_of, range(len(images)) if rows is None else rows, folder)


def saved_hashes(checkpoint: Mapping[str, Any], split: str = "train") -> Tensor | None:
    """The fingerprint of a split's images in a checkpoint; None where it has none."""
    hooks = (checkpoint.get("classy_state_dict") or {}).get("hooks") or {}
    found: Tensor | None = (hooks.get(RowPathsHook.name()) or {}).get(_KEYS[split])
    return found


def limited_to(data: GenericSSLDataset) -> Sequence[int] | None:
    """Which images of its source the host's data set takes for ``DATA_LIMIT``; None for all.

    The host chooses them when the first is read, by its seed, and keeps the choice.
    """
    if data.data_limit < 0:
        return None
    if not data._can_random_subset_data_sources():
        return range(data.data_limit)
    if not data._subset_initialized:
        if data.data_limit_sampling.IS_BALANCED and not data.labels_init:
            data.load_labels()
        data._init_image_and_label_subset()
    subset: Sequence[int] = data.image_and_label_subset
    return subset


def compare_rows_on_resume(task_class: type[SelfSupervisionTask]) -> None:
    """Have the host compare the data with the checkpoint before it loads the loss.

    At that moment the data set is known and the checkpoint read; a bank of another size would be
    refused next, and one of the same size accepted whatever its rows are of.

    Args:
        task_class: the host's ``SelfSupervisionTask``. Runs that are not ours are left alone.
    """
    original = task_class._build_loss
    if hasattr(original, "pirl_plugin_original"):
        return

    def _build_loss(self: SelfSupervisionTask) -> ClassyLoss:
        loss = original(self)
        if self.checkpoint and is_ours(self.config):
            if self.config.LOSS["name"] != "pirl_loss":
                check_checkpoint_images(self)
            elif "train" in self.datasets:
                check_checkpoint_rows(self, loss)
        return loss

    _build_loss.pirl_plugin_original = original  # type: ignore[attr-defined]
    task_class._build_loss = _build_loss


def check_checkpoint_images(task: SelfSupervisionTask) -> None:
    """Compare the images of a benchmark or a classifier with those of ``task.checkpoint``.

    Raises:
        ChangedDataError: they differ, and ``HOOKS.PIRL_RUN.changed_data`` is not ``keep``.
    """
    for split in task.datasets:
        before, paths = saved_hashes(task.checkpoint, split), image_paths(task, split)
        if before is None or paths is None:
            logging.info(f"The checkpoint does not say which {split} images it is of: not compared")
            continue
        changes = match_paths(before, hash_paths(paths))
        if changes is None:
            continue
        differs, name = changes.sentence(paths), f"config.DATA.{split.upper()}.DATA_PATHS"
        if RunSettings.from_config(task.config).changed_data == "keep":
            logging.warning(f"The {split} images differ from the checkpoint's ({differs})")
            continue
        raise ChangedDataError(
            f"{name} = {list(task.config.DATA[split.upper()].DATA_PATHS)}: expected the {split} "
            f"images that the checkpoint was made with, and {differs}; bring them back, set "
            f"config.HOOKS.PIRL_RUN.changed_data=keep to go on with these, or give another "
            f"config.CHECKPOINT.DIR to start a new run"
        )


def check_checkpoint_rows(task: SelfSupervisionTask, loss: PIRLLoss) -> None:
    """Compare the images with those of ``task.checkpoint``, and match its rows if that is asked.

    Raises:
        ChangedDataError: they differ, and ``HOOKS.PIRL_RUN.changed_data`` does not say what to do.
    """
    paths = image_paths(task)
    before = saved_hashes(task.checkpoint)
    if before is None or paths is None:
        logging.info("The checkpoint does not say which images its rows are of: not compared")
        return
    changes = match_paths(before, hash_paths(paths))
    if changes is None or _is_of_the_source(before, task):
        return
    wanted = RunSettings.from_config(task.config).changed_data
    differs = changes.sentence(paths)
    if wanted == "refuse":
        raise ChangedDataError(
            f"config.DATA.TRAIN.DATA_PATHS = {list(task.config.DATA.TRAIN.DATA_PATHS)}: expected "
            f"the images that the checkpoint was trained on, and {differs}; bring them back, or "
            f"set config.HOOKS.PIRL_RUN.changed_data=match to keep the rows of the same paths and "
            f"give new images new ones"
        )
    if wanted == "keep":
        logging.warning(f"The images differ from the checkpoint's ({differs}); rows are kept")
        return
    if "bank.rows" not in task.checkpoint["loss"]:
        raise ChangedDataError(
            "config.HOOKS.PIRL_RUN.changed_data = 'match': expected a replicated memory bank, and "
            "the checkpoint's is sharded; bring the images back, or start in another folder"
        )
    num_rows = len(task.checkpoint["loss"]["bank.rows"])
    if len(before) != num_rows:
        raise ChangedDataError(
            f"config.HOOKS.PIRL_RUN.changed_data = 'match': expected the path of each row, and the "
            f"checkpoint has those of {len(before)} images for {num_rows} rows, as an earlier "
            f"version saved with DATA_LIMIT; bring the images back, or start in another folder"
        )
    logging.warning(f"The images differ from the checkpoint's ({differs}); rows matched by path")
    task.checkpoint["loss"] = match_rows(
        task.checkpoint["loss"], loss.new_bank("replicated"), changes
    )


def _is_of_the_source(before: Tensor, task: SelfSupervisionTask) -> bool:
    """Whether a fingerprint is that of all images, which earlier versions saved with DATA_LIMIT."""
    if task.datasets["train"].data_limit < 0:
        return False
    return match_paths(before, hash_paths(source_paths(task) or [])) is None


def match_rows(saved: Mapping[str, Any], fresh: MemoryBank, changes: Changes) -> dict[str, Any]:
    """The loss's state with the rows of images that are still there; new ones as initialised.

    An estimated Z becomes that of N images.

    Args:
        saved: state of the checkpoint's loss, its bank of M rows.
        fresh: a new replicated bank of N rows, whatever the placement of the run's.
        changes: for each of the N images, its row among the M.
    """
    known = changes.rows >= 0
    matched = dict(saved)
    if saved["_extra_state"]["hyperparameters"]["norm_constant"] is None:  # |D| times a mean
        scale = fresh.num_rows / len(saved["bank.rows"])
        matched["norm_constant"] = saved["norm_constant"] * scale
    for name, rows in fresh.state_dict(prefix="bank.").items():
        rows[known] = saved[name][changes.rows[known]].to(rows.dtype)
        matched[name] = rows
    return matched
