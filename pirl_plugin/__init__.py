"""PIRL (Misra & van der Maaten, CVPR 2020, arXiv 1912.01991), in VISSL and in any PyTorch loop.

Importing this package takes milliseconds. It does not import torch or VISSL; public names are
loaded on first use. One table lists what the package adds to VISSL:
:mod:`pirl_plugin.vissl.import_hook.table`.

Example:
    >>> import torch
    >>> import pirl_plugin
    >>> pirl_plugin.info_nce(torch.zeros(1), torch.zeros(1, 3))  # log 4
    tensor([1.3863])
"""

TYPE_CHECKING = False  # true for type checkers; importing typing would cost milliseconds

if TYPE_CHECKING:
    from typing import Any

    from pirl_plugin.bank import MemoryBank
    from pirl_plugin.checkpoints.export import export_checkpoint
    from pirl_plugin.estimators import info_nce, nce, nce_softmax
    from pirl_plugin.evaluation.knn import knn_accuracy, leave_one_out_accuracy
    from pirl_plugin.evaluation.measures import alignment, effective_rank, measure_bank, uniformity
    from pirl_plugin.images.image_dataset import ImageDataset, collate_views
    from pirl_plugin.loss import PIRLLoss
    from pirl_plugin.models.head import PIRLHead
    from pirl_plugin.models.resnet import WideResNet
    from pirl_plugin.negatives import draw_negatives
    from pirl_plugin.sharded_bank import ShardedMemoryBank
    from pirl_plugin.views.base import ImageViews
    from pirl_plugin.views.jigsaw import JigsawViews, RotationJigsawViews
    from pirl_plugin.views.pixels import normalize_images
    from pirl_plugin.views.rotation import RotationViews

__version__ = "0.1.0"

__all__ = [
    "ImageDataset",
    "ImageViews",
    "JigsawViews",
    "MemoryBank",
    "PIRLHead",
    "PIRLLoss",
    "RotationJigsawViews",
    "RotationViews",
    "ShardedMemoryBank",
    "WideResNet",
    "alignment",
    "collate_views",
    "draw_negatives",
    "effective_rank",
    "export_checkpoint",
    "info_nce",
    "knn_accuracy",
    "leave_one_out_accuracy",
    "measure_bank",
    "nce",
    "nce_softmax",
    "normalize_images",
    "uniformity",
]

# Module -> the public names that it defines. The block above repeats them for type checkers.
_NAMES = {
    "bank": "MemoryBank",
    "checkpoints.export": "export_checkpoint",
    "estimators": "info_nce nce nce_softmax",
    "evaluation.knn": "knn_accuracy leave_one_out_accuracy",
    "evaluation.measures": "alignment effective_rank measure_bank uniformity",
    "images.image_dataset": "ImageDataset collate_views",
    "loss": "PIRLLoss",
    "models.head": "PIRLHead",
    "models.resnet": "WideResNet",
    "negatives": "draw_negatives",
    "sharded_bank": "ShardedMemoryBank",
    "views.base": "ImageViews",
    "views.jigsaw": "JigsawViews RotationJigsawViews",
    "views.pixels": "normalize_images",
    "views.rotation": "RotationViews",
}
_MODULES = {name: f"{__name__}.{module}" for module in _NAMES for name in _NAMES[module].split()}


def __getattr__(name: str) -> "Any":
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
