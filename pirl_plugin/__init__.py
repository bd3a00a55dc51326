"""PIRL (Misra & van der Maaten, CVPR 2020, arXiv 1912.01991), in VISSL and in any PyTorch loop.

Importing this package takes milliseconds. It does not import torch or VISSL; public names are
loaded on first use. What the package adds to VISSL is in two lists: parts, patches and steps in
:mod:`pirl_plugin.vissl.import_hook.table`, hooks in :mod:`pirl_plugin.vissl.run.pirl_task`.

Example:
    >>> import torch
    >>> import pirl_plugin
    >>> pirl_plugin.info_nce(torch.zeros(1), torch.zeros(1, 3))  # log 4
    tensor([1.3863])
"""

TYPE_CHECKING = False  # true for type checkers; importing typing would cost milliseconds

if TYPE_CHECKING:
    from pirl_plugin.checkpoints.classifier import load_classifier as load_classifier
    from pirl_plugin.checkpoints.export import export_checkpoint as export_checkpoint
    from pirl_plugin.checkpoints.load import load_trunk as load_trunk
    from pirl_plugin.checkpoints.write import save_trunk as save_trunk
    from pirl_plugin.evaluation.features import extract_features as extract_features
    from pirl_plugin.evaluation.knn import knn_accuracy as knn_accuracy
    from pirl_plugin.evaluation.knn import leave_one_out_accuracy as leave_one_out_accuracy
    from pirl_plugin.evaluation.measures import alignment as alignment
    from pirl_plugin.evaluation.measures import effective_rank as effective_rank
    from pirl_plugin.evaluation.measures import measure_bank as measure_bank
    from pirl_plugin.evaluation.measures import uniformity as uniformity
    from pirl_plugin.images.image_dataset import ImageDataset as ImageDataset
    from pirl_plugin.images.image_dataset import collate_views as collate_views
    from pirl_plugin.method.bank import MemoryBank as MemoryBank
    from pirl_plugin.method.estimators import info_nce as info_nce
    from pirl_plugin.method.estimators import nce as nce
    from pirl_plugin.method.estimators import nce_softmax as nce_softmax
    from pirl_plugin.method.loss import PIRLLoss as PIRLLoss
    from pirl_plugin.method.negatives import draw_negatives as draw_negatives
    from pirl_plugin.method.settings import BankConfig as BankConfig
    from pirl_plugin.method.sharded_bank import ShardedMemoryBank as ShardedMemoryBank
    from pirl_plugin.models.head import PIRLHead as PIRLHead
    from pirl_plugin.models.pirl import PIRL as PIRL
    from pirl_plugin.models.preprocessing import normalize_images as normalize_images
    from pirl_plugin.models.resnet import WideResNet as WideResNet
    from pirl_plugin.views.base import ImageViews as ImageViews
    from pirl_plugin.views.base import Views as Views
    from pirl_plugin.views.jigsaw import JigsawViews as JigsawViews
    from pirl_plugin.views.jigsaw import RotationJigsawViews as RotationJigsawViews
    from pirl_plugin.views.rotation import RotationViews as RotationViews

__version__ = "0.1.0.dev0"

# Module -> the public names that it defines. The block above repeats them for type checkers.
_NAMES = {
    "method.bank": "MemoryBank",
    "checkpoints.classifier": "load_classifier",
    "checkpoints.export": "export_checkpoint",
    "method.estimators": "info_nce nce nce_softmax",
    "checkpoints.load": "load_trunk",
    "checkpoints.write": "save_trunk",
    "evaluation.features": "extract_features",
    "evaluation.knn": "knn_accuracy leave_one_out_accuracy",
    "evaluation.measures": "alignment effective_rank measure_bank uniformity",
    "images.image_dataset": "ImageDataset collate_views",
    "method.loss": "PIRLLoss",
    "models.head": "PIRLHead",
    "models.pirl": "PIRL",
    "models.preprocessing": "normalize_images",
    "models.resnet": "WideResNet",
    "method.negatives": "draw_negatives",
    "method.settings": "BankConfig",
    "method.sharded_bank": "ShardedMemoryBank",
    "views.base": "ImageViews Views",
    "views.jigsaw": "JigsawViews RotationJigsawViews",
    "views.rotation": "RotationViews",
}
_MODULES = {name: f"{__name__}.{module}" for module in _NAMES for name in _NAMES[module].split()}
# A type checker understands only a literal list, and takes any name from a `__getattr__`.
if not TYPE_CHECKING:
    __all__ = sorted(_MODULES)

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
