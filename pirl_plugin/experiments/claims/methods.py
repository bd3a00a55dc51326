"""What is compared: each method's pre-training, as overrides of a config of the host's engine.

PIRL, NPID and the two classifiers of transformations are ``quick_jigsaw`` and
``quick_jigsaw_baseline`` with other views and heads, so that trunk, batch, rate, precision and data
path are one for all. Two are not ours: the supervised network is the host's linear benchmark with
nothing frozen, and ``vissl_pirl`` is VISSL's own PIRL config on the same trunk, with its own data
source, transforms and loss, in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.scales import autocast
from pirl_plugin.utils.hydra_overrides import quoted
from pirl_plugin.utils.our_configs import VISSL_PIRL

if TYPE_CHECKING:
    from pirl_plugin.experiments.claims.scales import Scale
    from pirl_plugin.experiments.data import Data

_LOSS = "config.LOSS.pirl_loss."
_LR = "config.OPTIMIZER.param_schedulers.lr."
_HEAD = (
    "[pirl_head,{in_dim:${config.MODEL.HEAD.IN_DIM},"
    "out_dim:${config.LOSS.pirl_loss.embedding_dim},"
    "hidden_dim:${config.MODEL.HEAD.HIDDEN_DIM},num_patches:1}]"
)
_PHOTOMETRIC = "photometric:${config.DATA.TRAIN.PHOTOMETRIC}"


@dataclass(frozen=True)
class Method:
    """One way to pre-train.

    Attributes:
        label: for tables and figures.
        config: the host's ``config=``; None where nothing is trained.
        time: of a run beside PIRL-jigsaw's of as many images, to estimate what is left.
        budget: images seen beside the comparison's. ``npidpp`` sees more than PIRL; this many
            take about as long as PIRL-jigsaw's. The paper's NPID++ has more epochs and negatives
            than Wu et al.'s NPID; it does not state them, and ``npid`` here takes PIRL's.
        contrastive: whether it has a memory bank and negatives.
        default: whether it is of the comparison where no methods are named.
    """

    label: str
    config: str | None
    time: float
    budget: float = 1.0
    contrastive: bool = False
    default: bool = True


_JIGSAW = "pretrain/pirl/quick_jigsaw"
_BASELINE = "pretrain/pirl/quick_jigsaw_baseline"
METHODS = {
    "random": Method("Random initialisation", None, 0.0),
    "npid": Method("NPID", _JIGSAW, 0.4, contrastive=True),
    "pirl_jigsaw": Method("PIRL (jigsaw)", _JIGSAW, 1.0, contrastive=True),
    "jigsaw": Method("Jigsaw classifier", _BASELINE, 0.9),
    "pirl_rotation": Method("PIRL (rotation)", _JIGSAW, 0.8, contrastive=True),
    "rotation": Method("Rotation classifier", _BASELINE, 0.4),
    "vissl_pirl": Method("VISSL's own PIRL", VISSL_PIRL, 3.8),
    "supervised": Method("Supervised", "benchmark/pirl/quick_linear", 0.8),
    "pirl_rotation_jigsaw": Method("PIRL (rotation + jigsaw)", _JIGSAW, 1.0, contrastive=True),
    "npidpp": Method("NPID (longer)", _JIGSAW, 0.4, budget=2.5, contrastive=True),
    "pirl_jigsaw_mlp_blur": Method(
        "PIRL (jigsaw), MLP head and blur", _JIGSAW, 1.1, contrastive=True, default=False
    ),
}
DEFAULT_METHODS = [name for name, method in METHODS.items() if method.default]


def pretraining(
    method: str, scale: Scale, data: Data, epochs: int, seed: int, extra: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Hydra overrides of a pre-training run, without its folder.

    Args:
        method: one of ``METHODS``, but for ``random``.
        scale: network, images and batch.
        data: what is trained on.
        epochs: its length.
        seed: of weights, order, views, bank and negatives.
        extra: further overrides, such as a sweep's.
    """
    row = METHODS[method]
    overrides = [
        f"config={row.config}",
        f"+config/pirl/machines={scale.machine}",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]",
        f"config.DATA.TRAIN.BATCHSIZE_PER_REPLICA={scale.batch}",
        f"config.OPTIMIZER.num_epochs={epochs}",
        f"config.SEED_VALUE={seed}",
        "config.CHECKPOINT.CHECKPOINT_FREQUENCY=1",
        f"++{_LR}auto_lr_scaling.auto_scale=false",
        f"{_LR}start_value={scale.rate:g}",
        f"{_LR}end_value={scale.rate / 1000:g}",
        f"{_LR}update_interval=step",
    ]
    if method == "vissl_pirl":
        return (*overrides, *_vissl(scale, data), *extra)
    overrides.append("config.CHECKPOINT.PIRL.KEEP_LAST=all")  # the clock thins them out
    if method == "supervised":
        return (*overrides, *_supervised(scale, data), *extra)
    overrides += [
        f"+config/pirl/models={scale.model}",
        f"config.DATA.TRAIN.TRANSFORMS=[{_views(method, scale)}]",
        f"config.HOOKS.PIRL_INPUT.autocast={autocast(scale)}",
        *_heads(method, scale),
    ]
    if row.contrastive:
        recipe = scale.recipe
        share = 0 if method in ("npid", "npidpp") else recipe.lambda_invariance
        # From random rows, embeddings of heads with a hidden layer become all alike: docs/results.
        init = "embeddings" if method == "pirl_jigsaw_mlp_blur" else recipe.bank_init
        overrides += [
            f"{_LOSS}lambda_invariance={share:g}",
            f"{_LOSS}temperature={recipe.temperature:g}",
            f"{_LOSS}bank.init={init}",
        ]
        negatives = scale.more_negatives if method == "npidpp" else scale.negatives
        overrides.append(f"{_LOSS}bank.seed={seed}")
        overrides.append(f"{_LOSS}num_negatives={min(negatives, data.num_train // 2)}")
    return (*overrides, *extra)


def _views(method: str, scale: Scale) -> str:
    """The entry of ``TRANSFORMS``."""
    image = f"image_size:{scale.image_size},image_scale:[0.2,1.0]"
    patches = (
        f"patches_crop_size:{scale.patches_crop_size},patches_scale:[0.6,1.0],"
        f"patch_size:{scale.patch_size}"
    )
    jigsaw = f"name:PIRLJigsaw,{image},{patches}"
    entries = {
        "pirl_jigsaw": jigsaw,
        "pirl_jigsaw_mlp_blur": jigsaw,
        "pirl_rotation_jigsaw": f"name:PIRLRotationJigsaw,{image},{patches}",
        "pirl_rotation": f"name:PIRLRotation,{image}",
        "npid": f"name:PIRLImage,{image}",
        "npidpp": f"name:PIRLImage,{image}",
        "jigsaw": f"name:PredictJigsaw,{patches},num_permutations:100",
        "rotation": f"name:PredictRotation,{image}",
    }
    return f"{{{entries[method]},{_PHOTOMETRIC}}}"


def _heads(method: str, scale: Scale) -> list[str]:
    """Inputs and heads, where they are not the config's; and the overlays that go with them."""
    inputs, mapping = "config.DATA.TRAIN.INPUT_KEY_NAMES", "config.MODEL.MULTI_INPUT_HEAD_MAPPING"
    params = "config.MODEL.HEAD.PARAMS"
    if method == "pirl_rotation":
        return [
            f"{inputs}=[rotated,images]",
            f"{mapping}=[[rotated,[flatten]],[images,[flatten]]]",
            f"{params}=[{_HEAD},{_HEAD}]",
        ]
    if method == "pirl_jigsaw_mlp_blur":
        return [
            "+config/pirl/transforms=gaussian_blur",
            # As wide as the features, which the _mlp overlays give ResNet-50.
            f"config.MODEL.HEAD.HIDDEN_DIM={scale.features}",
        ]
    if method in ("npid", "npidpp"):
        return [
            f"{inputs}=[images]",
            f"{mapping}=[]",
            f"{params}=[{_HEAD}]",
        ]
    if method == "rotation":
        head = "[mlp,{dims:[${config.MODEL.HEAD.IN_DIM},4]}]"
        return [f"{inputs}=[rotated]", f"{params}=[{head}]"]
    return []


def _supervised(scale: Scale, data: Data) -> list[str]:
    """The linear benchmark's data and classifier, with the trunk trained too."""
    features = "config.MODEL.FEATURE_EVAL_SETTINGS."
    return [
        *_trunk("config.MODEL.TRUNK.", "", scale),
        f"config.DATA.TRAIN.TRANSFORMS.0.size={scale.image_size}",
        "config.DATA.TRAIN.TRANSFORMS.0.scale=[0.2,1.0]",
        f"{features}EVAL_MODE_ON=false",
        f"{features}FREEZE_TRUNK_ONLY=false",
        f"{features}LINEAR_EVAL_FEAT_POOL_OPS_MAP=[]",
        f"config.MODEL.HEAD.NUM_CLASSES={data.num_classes}",
        f"config.MODEL.HEAD.PARAMS=[[mlp,{{dims:[{scale.features},{data.num_classes}]}}]]",
        "config.TEST_MODEL=false",
        "config.OPTIMIZER.weight_decay=0.0001",
        "config.OPTIMIZER.nesterov=false",
        "config.OPTIMIZER.regularize_bias=false",
    ]


def _vissl(scale: Scale, data: Data) -> list[str]:
    """VISSL's own PIRL on the same trunk; what is not said here is its config's.

    Its loss gets what ours has: InfoNCE, which it calls ``cross_entropy``, τ and N; λ = 0.5 and a
    bank of random rows are its own. Its transform leaves 21 px between patches whatever their size,
    so that patches of ours need a larger crop.
    """
    crop = 3 * (scale.patch_size + 21)
    transform = "config.DATA.TRAIN.TRANSFORMS.0."
    loss = "config.LOSS.nce_loss_with_memory."
    g = (
        f"[[mlp,{{dims:[{scale.features},128],use_bn:false,use_relu:false}}],"
        "[siamese_concat_view,{num_towers:9}],[mlp,{dims:[1152,128]}]]"
    )
    return [
        *_trunk("config.MODEL.TRUNK.", "+", scale),
        f"{transform}crop_size_image={scale.image_size}",
        f"{transform}crop_scale_image=[0.2,1.0]",
        f"{transform}crop_size_patches={crop}",
        f"config.MODEL.HEAD.PARAMS=[{g},[[mlp,{{dims:[{scale.features},128]}}]]]",
        f"{loss}loss_type=cross_entropy",
        f"{loss}temperature={scale.recipe.temperature:g}",
        f"{loss}negative_sampling_params.num_negatives={min(scale.negatives, data.num_train // 2)}",
        "config.LOG_FREQUENCY=20",
    ]


def _trunk(key: str, add: str, scale: Scale) -> list[str]:
    return [
        f"{key}NAME=pirl_resnet",
        *(f"{add}{key}PIRL_RESNET.{name}={value}" for name, value in scale.trunk.items()),
    ]
