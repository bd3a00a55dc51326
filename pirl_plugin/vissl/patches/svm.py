"""Patches of the host's feature extraction and SVMs, and the removal of old results."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch

if TYPE_CHECKING:
    from vissl.config import AttrDict


def average_precision_on_current_numpy(module: Any) -> None:
    """Broke: numpy has no ``np.float`` any more, and a matrix cell takes no one-element array.

    Either error ends the child process of the VOC07 SVM tool, and it prints ``AP: [-1]``.
    """
    original = module.get_precision_recall

    @functools.wraps(original)
    def get_precision_recall(targets: Any, scores: Any, weights: Any = None) -> tuple[Any, ...]:
        weights = np.ones(targets.shape[0]) if weights is None else weights
        *curves, average = original(targets, scores, weights)
        return *curves, float(np.asarray(average).item())

    module.get_precision_recall = get_precision_recall


def missing_average_precision_is_a_failure(module: Any) -> None:
    """Broke: the tool of the VOC07 SVM reports one that failed as ``AP: [-1]``, with status 0."""
    original = module.load_file

    @functools.wraps(original)
    def load_file(filename: str, *args: object, **kwargs: object) -> object:
        if Path(filename).name == "test_ap.npy" and not Path(filename).exists():
            raise SystemExit(
                f"pirl_plugin: no average precision in {filename}: training the SVM failed, and "
                f"its error is above"
            )
        return original(filename, *args, **kwargs)

    module.load_file = load_file


def extract_features_on_cpu(module: Any) -> None:
    """Never worked: feature extraction asserts a GPU and calls ``.cuda()`` on each batch."""
    trainer = module.SelfSupervisionTrainer
    original = trainer.extract
    if "Set MACHINE.DEVICE = gpu" not in original.__code__.co_consts:
        return

    @functools.wraps(original)
    def extract(self: Any, *args: object, **kwargs: object) -> object:
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


def low_shot_means_are_numbers(module: Any) -> None:
    """Broke: the low-shot tool puts a mean of one element, an array, into a matrix cell.

    The patch gives its module a numpy whose ``mean`` of one element is a number.
    """

    def mean(*args: Any, **kwargs: Any) -> Any:
        result = np.mean(*args, **kwargs)
        return result.reshape(())[()] if np.size(result) == 1 else result

    module.np = SimpleNamespace(**{**vars(np), "mean": mean})


def low_shot_samples_from_a_list(module: Any) -> None:
    """Broke: the low-shot tool calls ``split`` on its list of k, and passes too few arguments."""
    original = module.generate_low_shot_samples

    @functools.wraps(original)
    def generate_low_shot_samples(
        dataset_name: str, targets: Any, k_values: str | Sequence[int], *args: Any
    ) -> object:
        if not isinstance(k_values, str):
            k_values = ",".join(map(str, k_values))
        missing = len(args) < 4  # images_data_file, which only Places needs
        try:
            return original(dataset_name, targets, k_values, *args, *[None] * missing)
        except ValueError as error:  # of random.sample
            raise SystemExit(
                f"pirl_plugin: config.SVM.low_shot.k_values = [{k_values}]: expected each class "
                f"to have k images, and k · (classes − 1) others; lower them ({error})"
            ) from None

    module.generate_low_shot_samples = generate_low_shot_samples


def remove_old_results(config: AttrDict) -> None:
    """Remove features and results that an earlier run left in the same folder.

    The host's tools read all features in the folder. Even with ``SVM.force_retrain``, they reuse
    the costs chosen for other features. Features of a split that is not extracted now are kept.
    """
    from pirl_plugin.vissl.checks import splits_of

    out = Path(config.CHECKPOINT.DIR)
    files = [*out.glob("*/test_ap.npy")]
    if config.SVM.force_retrain:
        for name in ("crossval_ap.npy", "chosen_cost.npy", "cls*_cost*", "AP_cls*_cost*"):
            files += out.glob(f"*/{name}")
    features = Path(config.EXTRACT_FEATURES.OUTPUT_DIR or out)
    for split in splits_of(config):
        files += features.glob(f"rank*_chunk*_{split.lower()}_*.npy")
    for file in files:
        file.unlink()
