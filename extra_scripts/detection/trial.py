"""One detection trial, in a separate process: fine-tune, evaluate, write ``result.json``."""

from __future__ import annotations

import pickle
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from detectron2_setup import load_config, metric_kind

from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import write_json

if TYPE_CHECKING:
    from detectron2.config import CfgNode
    from detectron2.engine import DefaultTrainer, HookBase
    from detectron2.evaluation import DatasetEvaluator
    from detectron2.layers import ShapeSpec
    from torch import Tensor

CONFIG = "trial.yaml"
RESULT = "result.json"
METRICS = ("AP", "AP50", "AP75")
# The pre-trained tensors in a C4 or FPN model; all other tensors start from random values.
_PRETRAINED = re.compile(
    r"(?:backbone|backbone\.bottom_up|roi_heads)\.((?:stem|res[2-5])\.(?!norm\.).+)"
)
_HEAD = "Res5ROIHeadsExtraNorm"  # VISSL's name for the same head


def register_extra_norm() -> None:
    """Register the box head for MoCo's protocol, unless the name is registered, as by VISSL.

    MoCo (arXiv 1911.05722, Sec. 4.2) trains batch norm during fine-tuning. It adds a batch norm
    after res5, so that the box predictor gets features on a suitable scale.
    """
    from detectron2.layers import get_norm
    from detectron2.modeling.roi_heads import ROI_HEADS_REGISTRY, Res5ROIHeads

    if _HEAD in ROI_HEADS_REGISTRY:
        return

    class Res5ROIHeadsExtraNorm(Res5ROIHeads):
        """``Res5ROIHeads`` with a ``norm`` after res5, as set by ``MODEL.RESNETS.NORM``."""

        @classmethod
        def from_config(cls, cfg: CfgNode, input_shape: dict[str, ShapeSpec]) -> dict[str, object]:
            parts = super().from_config(cfg, input_shape)
            res5 = parts["res5"]
            res5.add_module("norm", get_norm(cfg.MODEL.RESNETS.NORM, res5[-1].out_channels))
            return parts

    ROI_HEADS_REGISTRY.register(Res5ROIHeadsExtraNorm)


def check_loaded(model: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Compare a model's state with its initial weights bit for bit, by Detectron2's names.

    Raises:
        ValueError: a backbone or res5 tensor differs, or a tensor in the file is missing from the
            model; the message names them.
    """
    import torch

    from pirl_plugin.checkpoints.tensors import COUNTER, compare
    from pirl_plugin.system.text import truncate

    loaded = {
        match[1]: tensor
        for name, tensor in model.items()
        if not name.endswith(COUNTER) and (match := _PRETRAINED.fullmatch(name))
    }
    mismatch = compare(weights, loaded)
    unset = [name for name in loaded if name not in weights]
    if unset and not mismatch:
        mismatch = f"{len(unset)} not in the file: {truncate(unset)}"
    if not mismatch:
        changed = [
            name
            for name, tensor in weights.items()
            if not torch.equal(loaded[name].cpu(), tensor.to(loaded[name].dtype))
        ]
        if changed:
            mismatch = f"different values in {truncate(changed)}"
    if mismatch:
        raise Refused(
            f"the model's backbone and res5 differ from the file: {mismatch}; training would start "
            f"from random weights"
        )


def new_trainer(config: CfgNode) -> DefaultTrainer:
    """Return Detectron2's default trainer, without evaluation during training."""
    from detectron2.data import MetadataCatalog
    from detectron2.engine import DefaultTrainer, hooks
    from detectron2.evaluation import COCOEvaluator, PascalVOCDetectionEvaluator

    class Trainer(DefaultTrainer):
        @classmethod
        def build_evaluator(cls, cfg: CfgNode, dataset_name: str) -> DatasetEvaluator:
            if MetadataCatalog.get(dataset_name).get("evaluator_type") == "pascal_voc":
                return PascalVOCDetectionEvaluator(dataset_name)
            return COCOEvaluator(dataset_name, output_dir=cfg.OUTPUT_DIR)

        def build_hooks(self) -> list[HookBase]:
            built = super().build_hooks()
            return [hook for hook in built if not isinstance(hook, hooks.EvalHook)]

    return Trainer(config)


def train_and_test(folder: str) -> None:
    """Run a trial in one of its processes; the first one writes the result.

    Args:
        folder: the trial's folder, with its configuration.

    Raises:
        ValueError: the weights did not load.
    """
    import torch
    from detectron2.engine import default_setup
    from detectron2.utils import comm

    start = time.perf_counter()
    register_extra_norm()
    config = load_config(Path(folder, CONFIG))
    config.freeze()
    default_setup(config, SimpleNamespace())
    trainer = new_trainer(config)
    trainer.resume_or_load(resume=True)
    model = getattr(trainer.model, "module", trainer.model)  # inside DistributedDataParallel
    # Detectron2 only logs weights that do not fit.
    if trainer.start_iter == 0:
        weights = pickle.loads(Path(config.MODEL.WEIGHTS).read_bytes())["model"]
        tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
        check_loaded(model.state_dict(), tensors)
    trainer.train()
    measured = trainer.test(trainer.cfg, trainer.model)
    # trainer.cfg has batch and rate for the number of GPUs, config those from the file.
    if not comm.is_main_process():
        return
    solver = trainer.cfg.SOLVER
    result = {
        **{name: float(measured["bbox"][name]) for name in METRICS},
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
    """Run ``python trial.py FOLDER NUM_GPUS``."""
    from detectron2.engine import launch

    folder, num_gpus = arguments
    launch(train_and_test, max(1, int(num_gpus)), dist_url="auto", args=(folder,))


if __name__ == "__main__":
    main(sys.argv[1:])
