"""Patches of the host's feature extraction and SVMs, and results of an earlier run in a folder."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.vissl.patches.patches import patched

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from vissl.config import AttrDict
    from vissl.trainer.trainer_main import SelfSupervisionTrainer
    from vissl.utils.svm_utils.svm_trainer import SVMTrainer

    from pirl_plugin.vissl.host_module import HostModule

    Labels = NDArray[np.integer]
    Features = NDArray[np.floating]


def average_precision_on_current_numpy(module: HostModule) -> None:
    """Broke: ``np.float`` is gone, and a one-element array no longer assigns to a matrix cell.

    The VOC07 SVM tool lost its child process to either and printed ``AP: [-1]``.
    """
    original = module.get_precision_recall

    @functools.wraps(original)
    def get_precision_recall(
        targets: Labels, scores: Features, weights: Features | None = None
    ) -> tuple[Features, Features, Features, float]:
        import numpy as np

        if weights is None:
            weights = np.ones(targets.shape[0])
        precision, recall, score, average = original(targets, scores, weights)
        return precision, recall, score, float(np.asarray(average).item())

    module.get_precision_recall = get_precision_recall
    patched("VOC07 SVM average precision")


def extract_features_on_cpu(module: HostModule) -> None:
    """Never worked: feature extraction asserts a GPU and calls ``.cuda()`` on each batch."""
    trainer = module.SelfSupervisionTrainer
    original = trainer.extract
    if "Set MACHINE.DEVICE = gpu" not in original.__code__.co_consts:
        return

    @functools.wraps(original)
    def extract(self: SelfSupervisionTrainer, *args: object, **kwargs: object) -> object:
        from unittest.mock import patch

        import torch

        task = self.task
        cpu, prepare = task.device, task.prepare_extraction
        if cpu.type != "cpu":
            return original(self, *args, **kwargs)

        def prepare_on_cpu(*args: object, **kwargs: object) -> object:
            task.device = cpu
            return prepare(*args, **kwargs)

        with (
            patch.object(task, "device", torch.device("cuda")),
            patch.object(task, "prepare_extraction", prepare_on_cpu),
            patch.object(torch.Tensor, "cuda", lambda tensor, *args, **kwargs: tensor),
        ):
            result = original(self, *args, **kwargs)
        return result

    trainer.extract = extract
    patched("feature extraction on a CPU")


def missing_svm_result_is_a_failure(module: HostModule) -> None:
    """Broke: an SVM whose process died is reported as ``AP: [-1]``, with exit status 0.

    The tools read each layer's result with ``load_file`` and swallow exceptions; this exit is not
    one of those.
    """
    original = module.load_file

    @functools.wraps(original)
    def load_file(filename: str, *args: object, **kwargs: object) -> object:
        if os.path.basename(filename) == "test_ap.npy" and not os.path.exists(filename):
            raise SystemExit(
                f"pirl_plugin: no average precision in {filename}: training the SVM failed, and "
                f"its error is above"
            )
        return original(filename, *args, **kwargs)

    module.load_file = load_file
    patched("VOC07 SVM failures")


def low_shot_means_are_numbers(module: HostModule) -> None:
    """Broke: the low-shot tool puts a mean of one element, an array, into a cell of a matrix.

    Its module is given a numpy whose ``mean`` of one element is a number.
    """
    import numpy as np

    def mean(*args: Any, **kwargs: Any) -> Any:
        result = np.mean(*args, **kwargs)
        return result.reshape(())[()] if np.size(result) == 1 else result

    class Numpy:
        def __getattr__(self, name: str) -> object:
            return mean if name == "mean" else getattr(np, name)

    module.np = Numpy()
    patched("low-shot SVM means")


def svm_starts_again(module: HostModule) -> None:
    """Broke: with ``SVM.force_retrain`` the costs chosen for other features were taken up again.

    Results of an earlier run in the same folder, with another checkpoint say, are removed first; a
    class whose training fails then has none.
    """
    trainer = module.SVMTrainer
    original = trainer.train

    @functools.wraps(original)
    def train(self: SVMTrainer, features: Features, targets: Labels) -> None:
        if self.config["force_retrain"]:
            for name in os.listdir(self.output_dir):
                if name in ("test_ap.npy", "crossval_ap.npy", "chosen_cost.npy") or (
                    name.startswith(("cls", "AP_cls")) and "_cost" in name
                ):
                    os.remove(os.path.join(self.output_dir, name))
        original(self, features, targets)

    trainer.train = train
    patched("SVMs of an earlier run")


def low_shot_samples_from_a_list(module: HostModule) -> None:
    """Broke: the low-shot tool passes its list of k to a ``split``, and one argument too few.

    A data set that is too small for a k ends in one sentence, in place of an error of ``random``.
    """
    original = module.generate_low_shot_samples

    @functools.wraps(original)
    def generate_low_shot_samples(
        dataset_name: str, targets: Labels, k_values: str | Sequence[int], *args: Any
    ) -> object:
        values = k_values.split(",") if isinstance(k_values, str) else k_values
        if "voc" in dataset_name:
            _check_samples(targets, max(map(int, values)))
        missing = len(args) < 4  # images_data_file, of Places alone
        return original(dataset_name, targets, ",".join(map(str, values)), *args, *[None] * missing)

    module.generate_low_shot_samples = generate_low_shot_samples
    patched("low-shot SVM samples")


def _check_samples(targets: Labels, k: int) -> None:
    """Exit where a class of ``(N, classes)`` targets has too few images for k positives."""
    for kind, label, needed in (("with", 1, k), ("without", 0, (targets.shape[1] - 1) * k)):
        found = (targets == label).sum(axis=0)
        if found.min() < needed:
            raise SystemExit(
                f"pirl_plugin: config.SVM.low_shot.k_values: expected {needed:,} images {kind} "
                f"each class for k = {k}, and class {found.argmin()} has {found.min():,}; leave "
                f"out large values of k"
            )


def remove_old_results(config: AttrDict) -> None:
    """Remove features and average precision that an earlier run left in the same folder.

    The host's tools read all features that are there. Features of a split that this run does not
    extract stay, and what ``SVM.force_retrain=false`` uses again.
    """
    from pirl_plugin.vissl.fit import splits_of

    for result in Path(config.CHECKPOINT.DIR).glob("*/test_ap.npy"):
        result.unlink(missing_ok=True)  # another node may have been first
    folder = config.EXTRACT_FEATURES.OUTPUT_DIR or config.CHECKPOINT.DIR
    if config.DISTRIBUTED.NUM_NODES == 1:
        for split in splits_of(config):
            for file in Path(folder).glob(f"rank*_chunk*_{split.lower()}_*.npy"):
                file.unlink()
