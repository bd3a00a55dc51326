"""One detection trial, in a process of its own: fine-tune, evaluate, write ``result.json``."""

from __future__ import annotations

import math
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pirl_plugin.detection.heads import register_extra_norm
from pirl_plugin.detection.setup import load_config, metric_kind
from pirl_plugin.files import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from detectron2.config import CfgNode
    from detectron2.engine import DefaultTrainer, HookBase
    from detectron2.evaluation import DatasetEvaluator
    from torch import Tensor

CONFIG, RESULT = "trial.yaml", "result.json"
# Where the pre-trained tensors go in a C4 or FPN model; the rest of such a model starts at random.
_PRETRAINED = re.compile(
    r"(?:backbone|backbone\.bottom_up|roi_heads)\.((?:stem|res[2-5])\.(?!norm\.).+)"
)


def check_loaded(model: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Compare a model with the weights it was to start from, bit by bit.

    Args:
        model: its state dictionary, by Detectron2's names.
        weights: by Detectron2's names, without a prefix.

    Raises:
        ValueError: a tensor of backbone or res5 that is not the file's, or one of the file that the
            model has no place for; by their names.
    """
    from pirl_plugin.checkpoints.compare import COUNTER, compare

    loaded = {
        match[1]: tensor
        for name, tensor in model.items()
        if not name.endswith(COUNTER) and (match := _PRETRAINED.fullmatch(name))
    }
    if mismatch := compare(weights, loaded, values=True):
        raise ValueError(
            f"backbone and res5 of the model are not the file's: {mismatch}; training would start "
            f"from random weights"
        )


def new_trainer(config: CfgNode) -> DefaultTrainer:
    """Detectron2's default trainer, which evaluates once, when it is asked to."""
    from detectron2.data import MetadataCatalog
    from detectron2.engine import DefaultTrainer, hooks
    from detectron2.evaluation import COCOEvaluator, PascalVOCDetectionEvaluator

    class Trainer(DefaultTrainer):
        """With the evaluator of the data set."""

        @classmethod
        def build_evaluator(
            cls, cfg: CfgNode, dataset_name: str, output_folder: str | None = None
        ) -> DatasetEvaluator:
            """VOC's for VOC, COCO's for all else."""
            if MetadataCatalog.get(dataset_name).get("evaluator_type") == "pascal_voc":
                return PascalVOCDetectionEvaluator(dataset_name)
            return COCOEvaluator(dataset_name, output_dir=output_folder or cfg.OUTPUT_DIR)

        def build_hooks(self) -> list[HookBase]:
            """All but the evaluation, which the caller does."""
            return [h for h in super().build_hooks() if not isinstance(h, hooks.EvalHook)]

    return Trainer(config)


def train_and_test(folder: str) -> None:
    """The trial of one process of ``folder``'s; the first writes the result.

    Raises:
        ValueError: the weights did not load, or an AP is not a number.
    """
    from detectron2.engine import default_setup
    from detectron2.utils import comm

    from pirl_plugin.checkpoints.read import read_checkpoint
    from pirl_plugin.checkpoints.trunk import find_trunk, to_detectron2

    start = time.perf_counter()
    register_extra_norm()
    config = load_config(Path(folder, CONFIG))
    config.freeze()
    default_setup(config, SimpleNamespace())
    trainer = new_trainer(config)
    trainer.resume_or_load(resume=True)
    model = getattr(trainer.model, "module", trainer.model)  # inside DistributedDataParallel
    if trainer.start_iter == 0:
        weights = Path(config.MODEL.WEIGHTS)
        found = find_trunk(read_checkpoint(weights), str(weights)).weights()
        check_loaded(model.state_dict(), {to_detectron2(n): t for n, t in found.items()})
    trainer.train()
    measured = trainer.test(trainer.cfg, trainer.model)
    if not comm.is_main_process():
        return
    metrics = {name: float(measured["bbox"][name]) for name in ("AP", "AP50", "AP75")}
    if not all(map(math.isfinite, metrics.values())):
        raise ValueError(f"{metrics}: expected numbers")
    solver = trainer.cfg.SOLVER
    result = {
        **metrics,
        "metric": metric_kind(config.DATASETS.TEST[0]),
        "seed": config.SEED,
        "images_per_step": solver.IMS_PER_BATCH,
        "base_lr": solver.BASE_LR,
        "iterations": solver.MAX_ITER,
        "resumed_at": trainer.start_iter,
        "seconds": round(time.perf_counter() - start, 1),
    }
    write_json(Path(folder, RESULT), result)


def main(arguments: list[str]) -> None:
    """``FOLDER NUM_GPUS``, for ``python -m``."""
    from detectron2.engine import launch

    folder, num_gpus = arguments
    launch(train_and_test, max(1, int(num_gpus)), dist_url="auto", args=(folder,))


if __name__ == "__main__":
    main(sys.argv[1:])
