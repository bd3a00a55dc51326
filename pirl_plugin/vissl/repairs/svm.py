"""VISSL's feature extraction, and its SVMs on VOC07."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray


def extract_features_on_cpu(
    trainer: Any, output_folder: str, *, original: Callable[..., Any], **options: bool
) -> object:
    """Never worked: ``SelfSupervisionTrainer.extract`` asserts a GPU.

    The loop, ``_extract_split_features``, calls ``.cuda()`` on each batch, in VISSL 0.1.6 and in
    git main. Extracting predictions, which exists only in git main, is left to VISSL.
    """
    from vissl.trainer import trainer_main as host

    task = trainer.task
    if task.device.type != "cpu" or options.get("extract_predictions"):
        return original(trainer, output_folder, **options)
    # As in the original, without the assertion.
    task.prepare_extraction(pin_memory=trainer.cfg.DATA.PIN_MEMORY)
    if hasattr(task, "add_dummy_layer"):  # git main
        task.add_dummy_layer()
    else:
        trainer._add_dummy_layer()
    task.init_distributed_data_parallel_model()
    layers = host.get_trunk_output_feature_names(trainer.cfg.MODEL) or ["heads"]
    for split in task.available_splits:
        task.data_iterator = _on_cpu(task.dataloaders[split.lower()])
        trainer._extract_split_features(layers, task, split, output_folder)
    trainer._cleanup_task()
    return None


class StaysOnCPU(torch.Tensor):
    """A tensor whose ``cuda()`` returns the tensor itself; results of operations keep this."""

    def cuda(self, *args: Any, **kwargs: Any) -> StaysOnCPU:
        """Return this tensor."""
        return self


def _on_cpu(batches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield batches whose images stay on the CPU."""
    for batch in batches:
        images = [part.as_subclass(StaysOnCPU) for part in batch["data"]]
        yield {**batch, "data": images}


def compute_average_precision(
    targets: Any, scores: Any, weights: Any = None, *, original: Callable[..., Any]
) -> tuple[Any, ...]:
    """Broke: numpy no longer has ``np.float``, and a matrix cell takes no one-element array.

    Either error ends the child process of the VOC07 SVM tool, which then prints ``AP: [-1]``.
    """
    if weights is None:  # the original would use np.float
        weights = np.ones(len(targets))
    precision, recall, thresholds, average = original(targets, scores, weights)
    return precision, recall, thresholds, float(np.asarray(average).item())


def refuse_missing_average_precision(
    filename: str, *args: object, original: Callable[..., object], **kwargs: object
) -> object:
    """Broke: the VOC07 SVM tool reports a failure as ``AP: [-1]``, with exit status 0."""
    if Path(filename).name == "test_ap.npy" and not Path(filename).exists():
        raise SystemExit(
            f"pirl_plugin: {filename} is missing. Training the SVM failed: see the error above."
        )
    return original(filename, *args, **kwargs)


def run_low_shot_test(
    trainer: Any,
    features: NDArray[np.float32],
    targets: NDArray[np.int32],
    sample_num: int,
    low_shot_kvalue: int,
    *,
    original: object,
) -> None:
    """Broke: the low-shot test puts a one-element array into a matrix cell.

    This method writes the same file: the average precision for each cost, averaged over classes,
    float64 ``(1, costs)``.
    """
    from vissl.utils.svm_utils import svm_low_shot_trainer as host

    if trainer.normalize:
        features = trainer._normalize_features(features)
    sample = f"sample{sample_num}_k{low_shot_kvalue}"
    means = []
    for cost in trainer.costs_list:
        precisions = []
        for number in trainer.cls_list:
            file = trainer._get_svm_low_shot_model_filename(number, cost, sample)
            scores = host.load_file(file).decision_function(features)
            tested_scores, tested_labels = trainer._get_cls_feats_labels(number, scores, targets)
            *_, precision = host.get_precision_recall(tested_labels, tested_scores)
            precisions.append(precision)
        means.append(np.mean(precisions))
    host.save_file(np.array([means]), f"{trainer.output_dir}/test_ap_{sample}.npy")


def draw_low_shot_samples(
    dataset_name: str,
    targets: Any,
    k_values: str | Sequence[int],
    sample_inds: Sequence[int],
    output_path: str,
    layername: str,
    images_data_file: str | None = None,  # only for Places
    *,
    original: Callable[..., Any],
) -> object:
    """Broke: the low-shot tool calls ``split`` on the list of k, and passes too few arguments."""
    if not isinstance(k_values, str):
        k_values = ",".join(map(str, k_values))
    return original(
        dataset_name, targets, k_values, sample_inds, output_path, layername, images_data_file
    )
