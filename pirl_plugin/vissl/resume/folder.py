"""A run's folder: the checkpoint to resume from, the checkpoints to keep, and old results."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.read import (
    CheckpointName,
    read_checkpoint,
    section_of,
    verify_checksums,
)
from pirl_plugin.method.settings import unpack_state
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import read_json_lines, remove, sha256_of, write_json
from pirl_plugin.vissl.resume.record import (
    RUN_RECORD,
    refuse_another_run,
    refuse_other_images,
    write_run_config,
)
from pirl_plugin.vissl.sections import RECORD

if TYPE_CHECKING:
    from vissl.config import AttrDict

_SHARDS = "memory_bank"  # folder with a folder of shards for each step

# If one of these is missing, VISSL starts with a new state instead.
_PARTS = {"classy_state_dict", "loss", "phase_idx", "train_phase_idx", "iteration", "iteration_num"}


@dataclass(frozen=True)
class Keep:
    """Which checkpoints to keep: the ``CHECKPOINT.PIRL`` section.

    Attributes:
        KEEP_LAST: how many of the newest checkpoints to keep; 0: all.
        KEEP_EVERY: m: also keep epochs 0, m, 2·m, …; 0: none. The final one is always kept.
        EVERY_MINUTES: minutes between saves within an epoch; 0: never.
    """

    KEEP_LAST: int = 2
    KEEP_EVERY: int = 0
    EVERY_MINUTES: float = 30


@dataclass
class ResumePoint:
    """The checkpoint to resume from.

    Attributes:
        path: the checkpoint's path; None for a new run.
        content: the checkpoint's content; tensors are still on disk.
        skipped: name → fault, for each checkpoint that cannot be loaded.
        is_finished: whether nothing is left to do, including the last test.
    """

    path: Path | None = None
    content: Mapping[str, Any] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    is_finished: bool = False

    @property
    def is_final(self) -> bool:
        """Whether this is a run's last checkpoint."""
        name = CheckpointName.parse(self.path.name) if self.path is not None else None
        return name is not None and name.is_final


def resume_point(config: AttrDict, folder: Path) -> ResumePoint:
    """Find the newest loadable checkpoint, and log a warning if the run is finished.

    VISSL looks only at file names: a damaged newest checkpoint would end every restart, and an
    empty final one would pass for a finished run.

    Args:
        config: VISSL's complete configuration.
        folder: the run's folder.

    Raises:
        Refused: the checkpoint is from another run, or none in the folder can be loaded.
    """
    section = config.CHECKPOINT
    point = find_newest(
        folder,
        nth=int(section.LATEST_CHECKPOINT_RESUME_FILE_NUM),
        skip_final=bool(section.OVERWRITE_EXISTING),
    )
    for name, fault in point.skipped.items():
        warn(f"Skipped {folder / name}: {fault}")
    if not section.AUTO_RESUME:
        point = point if point.is_final else ResumePoint()  # a finished run is never overwritten
    elif point.path is not None:
        refuse_another_run(config, section_of(point.content), point.path)
    elif point.skipped:
        names = ", ".join(point.skipped)
        raise Refused(
            f"{folder}: none of {names} can be loaded. Restore one, or delete them to start again."
        )
    if point.path is None or not point.is_final:
        return point
    # The run may have been stopped after its final checkpoint, before its last test ended.
    finished_phases = read_json_lines(folder / "metrics.json") or [{"phase_idx": -1}]
    if config.TEST_MODEL and finished_phases[-1]["phase_idx"] <= point.content["phase_idx"]:
        return point
    # A resumed run compares its images when it opens them; this one does not open them.
    from pirl_plugin.vissl.adapters.dataset import open_datasets

    recorded = section_of(point.content)
    images = {}
    for split, dataset in open_datasets(config, recorded.get("images") or {}).items():
        images[split.upper()] = dataset.identity()
    refuse_other_images(images, recorded, point.path)
    logging.warning(f"{point.path}: this run is finished. For another run, choose another folder.")
    point.is_finished = True
    return point


def find_newest(folder: Path, nth: int = 1, skip_final: bool = False) -> ResumePoint:
    """Find a run's newest undamaged checkpoint.

    Args:
        folder: the run's folder.
        nth: 1 for the newest one, 2 for the one before it, …; at most the oldest one.
        skip_final: skip a finished run's final checkpoint.
    """
    point = ResumePoint()
    opened = []
    for path in folder.glob("model_*.torch"):
        name = CheckpointName.parse(path.name)
        if name is None or (skip_final and name.is_final):
            continue
        try:
            content = read_checkpoint(path, mapped=True)
            if "config" not in section_of(content):
                raise ValueError("this plugin did not write it, so a run cannot resume from it")
            if missing := _PARTS - content.keys():
                raise ValueError(f"it has no {min(missing)}, so a run cannot resume from it")
            # At the same iteration, the checkpoint after the epoch is the newer one.
            age = (int(content["iteration"]), name.kind == "phase")
        except (KeyError, OSError, TypeError, ValueError) as error:
            point.skipped[path.name] = str(error)
            continue
        opened.append((age, path, content))
    for _, path, content in sorted(opened, key=itemgetter(0), reverse=True):
        try:
            verify_checksums(path)
            _check_shards(folder, content)
        except ValueError as error:
            point.skipped[path.name] = str(error)
            continue
        point.path = path
        point.content = content
        nth -= 1
        if nth <= 0:
            break
    return point


def shards_of_step(step: int) -> str:
    """Return the folder for a step's memory bank shards, relative to the run's folder.

    Example:
        >>> shards_of_step(40)
        'memory_bank/step_40'
    """
    return f"{_SHARDS}/step_{step}"


class RunFolder:
    """Removes checkpoints that are no longer needed.

    Each checkpoint records its run's checkpoints, so that a resumed run knows them. Other files in
    the folder, such as checkpoints copied from another run, stay.

    Args:
        folder: ``CHECKPOINT.DIR``.
        keep: which checkpoints to keep.
        saved: the run's earlier checkpoints, as a checkpoint records them: name → step of their
            memory bank shards, or None without shards; the newest last.
    """

    def __init__(self, folder: Path, keep: Keep, saved: Mapping[str, int | None]) -> None:
        self.folder = folder
        self.keep = keep
        self.saved: dict[str, int | None] = {}
        for name, step in saved.items():
            if CheckpointName.parse(name) is not None:  # the file may be from somebody else
                self.saved[name] = None if step is None else int(step)

    def add(self, name: str, step: int | None) -> None:
        """Add a new checkpoint.

        Args:
            name: the checkpoint's file name.
            step: step of its shards; None without shards.
        """
        # Move the name to the end, even if an earlier checkpoint had it.
        self.saved.pop(name, None)
        self.saved[name] = step

    def remove_old(self) -> None:
        """Remove old checkpoints; the newest must be complete on disk."""
        names = list(self.saved)
        newest = names[-self.keep.KEEP_LAST :]  # for 0, all
        every = self.keep.KEEP_EVERY
        for name in names:
            parts = CheckpointName.parse(name)
            assert parts is not None, "VISSL names it"
            is_nth_epoch = every > 0 and parts.kind == "phase" and parts.number % every == 0
            if name in newest or parts.is_final or is_nth_epoch:
                continue
            step = self.saved.pop(name)
            try:
                remove(self.folder / name)
                # Two checkpoints from one step, within and after an epoch, share their shards.
                if step is not None and step not in self.saved.values():
                    remove(self.folder / shards_of_step(step))
            except OSError as error:
                warn(f"{name} could not be deleted: {error}")


def _check_shards(run: Path, content: Mapping[str, Any]) -> None:
    """Compare memory bank shards with the checksums in the checkpoint.

    Raises:
        ValueError: a shard is missing or differs; the message names it.
    """
    shards = section_of(content).get("shards")
    if not shards:
        return
    step = int(unpack_state(content["loss"]["_extra_state"])["step"])
    for name, digest in shards.items():
        file = run / shards_of_step(step) / name
        if not file.is_file():
            raise ValueError(f"memory bank file {file} is missing")
        if sha256_of(file) != digest:
            raise ValueError(f"memory bank file {file} does not match its checksum")


def begin_extraction(config: AttrDict, folder: Path) -> None:
    """Replace the record, features and results that an earlier run left in the same folder.

    VISSL's tools read all features in the folder. Even with ``SVM.force_retrain``, they reuse costs
    chosen for other features. Features for a split that is not extracted now stay.
    """
    files = [*folder.glob("*/test_ap.npy")]
    if config.SVM.force_retrain:
        for name in ("crossval_ap.npy", "chosen_cost.npy", "cls*_cost*", "AP_cls*_cost*"):
            files += folder.glob(f"*/{name}")
    features = Path(config.EXTRACT_FEATURES.OUTPUT_DIR or folder)
    for split, is_extracted in (("train", not config.TEST_ONLY), ("test", config.TEST_MODEL)):
        if is_extracted:
            files += features.glob(f"rank*_chunk*_{split}_*.npy")
    for file in files:
        file.unlink()
    # Afterward, so that old results cannot pass for the new configuration's.
    record = config[RECORD]
    write_run_config(record.config, folder)
    write_json(folder / RUN_RECORD, asdict(record))
