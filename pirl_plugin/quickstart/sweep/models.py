"""The models of a sweep: the pre-training and benchmarks of each, as the host's overrides."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.networks import network_of_section
from pirl_plugin.evaluation.linear_run import final_checkpoint
from pirl_plugin.quickstart.data import (
    IMAGE_SIZE,
    TRUNK,
    Data,
    quick_epochs,
    quick_linear,
)
from pirl_plugin.quickstart.runs import Run
from pirl_plugin.quickstart.sweep.values import SWEEPS
from pirl_plugin.utils.hydra_overrides import compose, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONFIGS = {
    ("paper", "PIRL"): "pretrain/pirl/jigsaw_8node",
    ("paper", "Jigsaw"): "pretrain/pirl/jigsaw_baseline_8node",
    ("quick", "PIRL"): "pretrain/pirl/quick_jigsaw",
    ("quick", "Jigsaw"): "pretrain/pirl/quick_jigsaw_baseline",
}
_LOSS = "config.LOSS.pirl_loss."
_PIRLS = (  # what the jigsaw classifier has not: bank, image view, heads f and g
    _LOSS,
    "config/pirl/bank",
    "config.HOOKS.PIRL_MONITOR.",
    "config.DATA.TRAIN.VIEWS.image_",
    "config.DATA.TRAIN.TRANSFORMS.0.image_",
    "config.MODEL.HEAD.HIDDEN_DIM",
    "config.MODEL.HEAD.F",
    "config.MODEL.HEAD.G",
)


@dataclass(frozen=True)
class Settings:
    """What all runs of a sweep have in common.

    Attributes:
        name: of the sweep.
        scale: ``paper`` or ``quick``.
        data: the images.
        out: folder of the sweep.
        pretrain: further overrides of every pre-training.
        linear: further overrides of every linear benchmark.
        voc07: ``VOC2007``, where SVMs are to be trained on it, as the paper does for |T|.
    """

    name: str
    scale: str
    data: Data
    out: Path
    pretrain: tuple[str, ...] = ()
    linear: tuple[str, ...] = ()
    voc07: Path | None = None


def chain(settings: Settings, method: str, value: float) -> tuple[Run, ...]:
    """Pre-training and benchmarks of one model, in ``OUT/METHOD_VALUE``: linear, and VOC07's."""
    folder = settings.out / f"{method.lower()}_{value}"
    label = f"{method}, {SWEEPS[settings.name].symbol} = {value}"
    common = _pretrain(settings, method)
    mine = [o for o in settings.pretrain if method == "PIRL" or not key_of(o).startswith(_PIRLS)]
    swept = f"{SWEEPS[settings.name].key}={value}"
    pretrain = Run(
        f"{label}: pre-training",
        folder / "pretrain",
        tuple(_merged(common, [*mine, swept])),
    )
    checkpoint = final_checkpoint(pretrain.folder) or pretrain.folder / "checkpoint.torch"
    linear = Run(
        f"{label}: linear",
        folder / "linear",
        tuple(_merged(_linear(settings, checkpoint), settings.linear)),
        measures=True,
    )
    if settings.voc07 is None:
        return pretrain, linear
    svm = Run(
        f"{label}: VOC07",
        folder / "voc07",
        tuple(_svm(settings, settings.voc07, checkpoint)),
        tool="train_svm.py",
    )
    return pretrain, linear, svm


def check_overrides(settings: Settings) -> None:
    """Refuse overrides of what the sweep itself sets in each run.

    Raises:
        ValueError: names the override.
    """
    taken = {"config", "config.CHECKPOINT.DIR"}
    key = key_of(SWEEPS[settings.name].key)
    swept = {key, key.replace("TRANSFORMS.0", "VIEWS")}  # two names of one key
    weights = {"config.MODEL.WEIGHTS_INIT.PARAMS_FILE"}
    for overrides, keys in ((settings.pretrain, swept), (settings.linear, weights)):
        for override in overrides:
            if "=" not in override and not override.startswith("~"):
                raise ValueError(f"'{override}' is no override: expected KEY=VALUE, as Hydra's")
            if key_of(override) in taken | keys:
                raise ValueError(
                    f"'{override}' cannot be given: the sweep sets {key_of(override)} in each run"
                )


def check_runs(settings: Settings, asked: Sequence[tuple[str, float]]) -> None:
    """Compose the runs of a model of each method, and compare their trunks, if overrides are given.

    Args:
        settings: of the sweep.
        asked: method and value of each model.

    Raises:
        SystemExit: a run that would be refused when its turn comes, and why.
    """
    if not settings.pretrain and not settings.linear:
        return
    first: dict[str, float] = {}
    for method, value in asked:
        first.setdefault(method, value)
    for method, value in first.items():
        pretraining, *evaluations = chain(settings, method, value)
        trained = _composed(pretraining)
        for run in evaluations:
            _check_trunk(run, _composed(run), trained)


def _composed(run: Run) -> Any:
    try:
        return compose(*run.overrides)
    except SystemExit as refused:
        why = str(refused).removeprefix("pirl_plugin: ")
        raise SystemExit(f"pirl_plugin: {run.title}: {why}") from None


def _check_trunk(run: Run, config: Any, trained: Any) -> None:
    """Refuse an evaluation of another trunk than is pre-trained."""
    mine, expected = (network_of_section(each.MODEL.TRUNK) for each in (config, trained))
    if mine is None or expected is None or mine.title == expected.title:
        return
    options = expected.overrides("linear") or ["config.MODEL.TRUNK.KEY=VALUE"]
    remedy = f"add {shlex.join(word for option in options for word in ('--linear', option))}"
    if not run.measures:  # VISSL's SVMs, to which a sweep gives no overrides
        remedy = "leave --voc07 out"
    raise SystemExit(
        f"pirl_plugin: {run.title}: {mine.with_article}: expected "
        f"{expected.with_article}, which is pre-trained; {remedy}"
    )


def key_of(override: str) -> str:
    """``++config.A.B=1`` → ``config.A.B``."""
    return override.partition("=")[0].lstrip("+~")


def _merged(ours: Sequence[str], given: Sequence[str]) -> list[str]:
    """Our overrides without those that the user gives: Hydra refuses one overlay group twice."""
    again = {key_of(override) for override in given}
    return [*(o for o in ours if key_of(o) not in again), *given]


def _pretrain(settings: Settings, method: str) -> list[str]:
    data = settings.data
    overrides = [
        f"config={_CONFIGS[settings.scale, method]}",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]",
    ]
    if settings.scale == "paper":
        # The baseline's length is that of the analysis already, and it has no negatives.
        return overrides + (["+config/pirl/epochs=analysis_400"] if method == "PIRL" else [])
    overrides.append(f"config.OPTIMIZER.num_epochs={quick_epochs(data)}")
    if method == "PIRL":
        overrides.append(f"{_LOSS}num_negatives={min(1024, data.num_train // 2)}")
    return overrides


def _linear(settings: Settings, checkpoint: Path) -> list[str]:
    if settings.scale == "quick":
        return quick_linear(settings.data, checkpoint)
    return [
        "config=benchmark/pirl/linear_imagenet1k",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(settings.data.train)}]",
        f"config.DATA.TEST.DATA_PATHS=[{quoted(str(settings.data.val))}]",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={quoted(checkpoint)}",
    ]


def _svm(settings: Settings, voc07: Path, checkpoint: Path) -> list[str]:
    overrides = [
        "config=benchmark/pirl/svm_voc07",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(voc07)}]",
        f"config.DATA.TEST.DATA_PATHS=[{quoted(voc07)}]",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={quoted(checkpoint)}",
    ]
    if settings.scale == "paper":
        return overrides
    return [
        *overrides,
        "+config/pirl/machines=cpu",
        "config.MODEL.TRUNK.NAME=pirl_resnet",
        f"+config.MODEL.TRUNK.PIRL_RESNET={{{', '.join(f'{k}: {v}' for k, v in TRUNK.items())}}}",
        "config.MODEL.FEATURE_EVAL_SETTINGS.LINEAR_EVAL_FEAT_POOL_OPS_MAP="
        "[[res5, [AdaptiveAvgPool2d, [[1, 1]]]]]",
        f"config.DATA.TRAIN.RESIZE=[{IMAGE_SIZE}, {IMAGE_SIZE}]",  # of the test images too
    ]
