"""Patches of the host's evaluation: what broke there, and the smallest repair of each."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.vissl.patches.patches import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    """Never worked: feature extraction asserts a GPU and calls ``.cuda()`` on each batch.

    On a CPU the assertion is met by a stand-in device until the task is prepared, and ``.cuda()``
    returns its tensor, for the length of the extraction only.
    """
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
    import types

    import numpy as np

    try:
        np.zeros(1)[0] = np.ones(1)
        return
    except ValueError:
        pass

    def mean(*args: Any, **kwargs: Any) -> Any:
        result = np.mean(*args, **kwargs)
        return result.reshape(())[()] if np.size(result) == 1 else result

    class Numpy(types.ModuleType):
        mean: Callable[..., Any]

        def __getattr__(self, name: str) -> object:
            return getattr(np, name)

    module.np = Numpy("numpy")
    module.np.mean = mean
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
    """Broke: the low-shot tool passes its list of k to a ``split``, and one argument too few."""
    original = getattr(module, "generate_low_shot_samples", None)
    if original is None or "split" not in original.__code__.co_names:
        return

    @functools.wraps(original)
    def generate_low_shot_samples(
        dataset_name: str,
        targets: Labels,
        k_values: str | Sequence[int],
        sample_inds: Sequence[int],
        output_path: str,
        layername: str,
        images_data_file: str | None = None,
    ) -> object:
        if not isinstance(k_values, str):
            k_values = ",".join(str(k) for k in k_values)
        return original(
            dataset_name, targets, k_values, sample_inds, output_path, layername, images_data_file
        )

    module.generate_low_shot_samples = generate_low_shot_samples
    patched("low-shot SVM samples")


def remove_old_results(config: AttrDict) -> None:
    """Remove what an earlier run in the same folder left: features, and SVMs' average precision.

    That run may have had more processes or images, and the host's tools read all features that are
    there. Features of a split that this run does not extract stay. The earlier precision would be
    taken for that of this run's SVMs, which the host trains later. What
    ``SVM.force_retrain=false`` takes up again stays.
    """
    from pirl_plugin.vissl.checks import splits_of

    for result in Path(config.CHECKPOINT.DIR).glob("*/test_ap.npy"):
        result.unlink(missing_ok=True)  # another node may have been first
    folder = config.EXTRACT_FEATURES.OUTPUT_DIR or config.CHECKPOINT.DIR
    if config.DISTRIBUTED.NUM_NODES == 1:
        for split in splits_of(config):
            for file in Path(folder).glob(f"rank*_chunk*_{split.lower()}_*.npy"):
                file.unlink()
