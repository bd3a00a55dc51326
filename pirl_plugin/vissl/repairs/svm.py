"""VISSL's feature extraction, and its SVMs on VOC07."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch


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
