"""The host's extraction of features, on a CPU."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import torch


def extract_features_on_cpu(module: Any) -> None:
    """Never worked: feature extraction asserts a GPU and calls ``.cuda()`` on each batch."""
    trainer = module.SelfSupervisionTrainer
    original = trainer.extract
    if list(inspect.signature(original).parameters) != ["self", "output_folder"]:
        return  # git main, whose extraction runs on a CPU and has more parameters

    @functools.wraps(original)
    def extract(self: Any, output_folder: str) -> object:
        task = self.task
        if task.device.type != "cpu":
            return original(self, output_folder)
        # The steps of the original, without its assertion.
        task.prepare_extraction(pin_memory=self.cfg.DATA.PIN_MEMORY)
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
