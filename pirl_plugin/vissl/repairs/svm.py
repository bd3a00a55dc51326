"""The host's extraction of features, and its SVMs on VOC07."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from vissl.config import AttrDict


def extract_features_on_cpu(module: Any) -> None:
    """Never worked: ``SelfSupervisionTrainer.extract`` asserts a GPU.

    Its loop, ``_extract_split_features``, calls ``.cuda()`` on each batch. Both are so in VISSL
    0.1.6 and in git main. The extraction of predictions, which only git main has, stays the host's.
    """
    trainer = module.SelfSupervisionTrainer
    original = trainer.extract

    @functools.wraps(original)
    def extract(self: Any, output_folder: str, **options: bool) -> object:
        task = self.task
        if task.device.type != "cpu" or options.get("extract_predictions"):
            return original(self, output_folder, **options)
        # The steps of the original, without its assertion.
        task.prepare_extraction(pin_memory=self.cfg.DATA.PIN_MEMORY)
        if hasattr(task, "add_dummy_layer"):  # git main
            task.add_dummy_layer()
        else:
            self._add_dummy_layer()
        task.init_distributed_data_parallel_model()
        layers = module.get_trunk_output_feature_names(self.cfg.MODEL) or ["heads"]
        for split in task.available_splits:
            task.data_iterator = _on_cpu(task.dataloaders[split.lower()])
            self._extract_split_features(layers, task, split, output_folder)
        self._cleanup_task()
        return None

    trainer.extract = extract


class StaysOnCPU(torch.Tensor):
    """A tensor whose ``cuda()`` returns the tensor itself; results of operations are like it."""

    def cuda(self, *args: Any, **kwargs: Any) -> StaysOnCPU:
        """Return this tensor."""
        return self


def _on_cpu(batches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield batches whose images stay on the CPU."""
    for batch in batches:
        images = [part.as_subclass(StaysOnCPU) for part in batch["data"]]
        yield {**batch, "data": images}


def average_precision_on_current_numpy(module: Any) -> None:
    """Broke: numpy has no ``np.float`` any more, and a matrix cell takes no one-element array.

    Either error ends the child process of the VOC07 SVM tool, and it prints ``AP: [-1]``.
    """
    original = module.get_precision_recall

    @functools.wraps(original)
    def get_precision_recall(targets: Any, scores: Any, weights: Any = None) -> tuple[Any, ...]:
        if weights is None:  # the original would use np.float
            weights = np.ones(len(targets))
        precision, recall, thresholds, average = original(targets, scores, weights)
        return precision, recall, thresholds, float(np.asarray(average).item())

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


def low_shot_test_on_current_numpy(module: Any) -> None:
    """Broke: the low-shot test puts a mean of one element, an array, into a matrix cell.

    This method writes the same file: the mean over classes of the average precision of each cost,
    float64 ``(1, costs)``.
    """

    def test(
        self: Any,
        features: NDArray[np.float32],
        targets: NDArray[np.int32],
        sample_num: int,
        low_shot_kvalue: int,
    ) -> None:
        if self.normalize:
            features = self._normalize_features(features)
        sample = f"sample{sample_num}_k{low_shot_kvalue}"
        means = []
        for cost in self.costs_list:
            precisions = []
            for number in self.cls_list:
                file = self._get_svm_low_shot_model_filename(number, cost, sample)
                scores = module.load_file(file).decision_function(features)
                tested_scores, tested_labels = self._get_cls_feats_labels(number, scores, targets)
                *_, precision = module.get_precision_recall(tested_labels, tested_scores)
                precisions.append(precision)
            means.append(np.mean(precisions))
        module.save_file(np.array([means]), f"{self.output_dir}/test_ap_{sample}.npy")

    module.SVMLowShotTrainer.test = test


def low_shot_samples_from_a_list(module: Any) -> None:
    """Broke: the low-shot tool calls ``split`` on its list of k, and passes too few arguments."""
    original = module.generate_low_shot_samples

    @functools.wraps(original)
    def generate_low_shot_samples(
        dataset_name: str,
        targets: Any,
        k_values: str | Sequence[int],
        sample_inds: Sequence[int],
        output_path: str,
        layername: str,
        images_data_file: str | None = None,  # only of Places
    ) -> object:
        if not isinstance(k_values, str):
            k_values = ",".join(map(str, k_values))
        try:
            return original(
                dataset_name,
                targets,
                k_values,
                sample_inds,
                output_path,
                layername,
                images_data_file,
            )
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
    out = Path(config.CHECKPOINT.DIR)
    files = [*out.glob("*/test_ap.npy")]
    if config.SVM.force_retrain:
        for name in ("crossval_ap.npy", "chosen_cost.npy", "cls*_cost*", "AP_cls*_cost*"):
            files += out.glob(f"*/{name}")
    features = Path(config.EXTRACT_FEATURES.OUTPUT_DIR or out)
    for split, is_extracted in (("train", not config.TEST_ONLY), ("test", config.TEST_MODEL)):
        if is_extracted:
            files += features.glob(f"rank*_chunk*_{split}_*.npy")
    for file in files:
        file.unlink()
