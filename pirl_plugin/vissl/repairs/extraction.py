"""The host's extraction of features, on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch


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
