"""What a finished run measured, and which row and columns of the paper's tables it belongs to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pirl_plugin.evaluation.linear_run import last_test

LAYERS = ("conv1", "res2", "res3", "res4", "res5")
_LINEAR = {  # data set's name in the configuration → column
    "imagenet1k": "ImageNet",
    "places205": "Places205",
    "inaturalist18": "iNaturalist-2018",
    "voc07": "VOC07",
}
_TASKS = {
    "PIRLJigsaw": "PIRL",
    "PIRLRotation": "PIRL (Rotation)",
    "PIRLRotationJigsaw": "PIRL (Rotation + Jigsaw)",
    "PredictJigsaw": "Jigsaw",
    "PredictRotation": "Rotation",
}
_TABLES = {  # row → tables of linear models; 2 and 7 for any other
    "Rotation": (2, 5),
    "PIRL-c2x": (2,),
    "PIRL-ens": (2,),
    "Jigsaw (YFCC-1M)": (4,),
    "PIRL (YFCC-1M)": (4,),
    "PIRL (Jigsaw)": (5,),
    "PIRL (Rotation)": (5,),
    "PIRL (Rotation + Jigsaw)": (5,),
}
_DETECTION = {  # configuration → table, and row of weights of which nothing else is known
    "voc07_pirl": (6, "PIRL"),
    "voc0712_pirl": (1, "PIRL"),
    "voc07_supervised_jigsaw": (6, None),
    "voc0712_supervised_jigsaw": (1, None),
    "voc0712_moco24k": (1, "MoCo (BatchNorm fine-tuned)"),
}


@dataclass(frozen=True)
class Run:
    """Figures of one run.

    Attributes:
        path: its folder.
        method: the row, such as ``PIRL``.
        tables: numbers of the paper's tables it may stand in.
        figures: column → percent. A layer's figures are called ``ImageNet res5``.
        best_layer: the layer that was reported, where there are several.
    """

    path: Path
    method: str
    tables: tuple[int, ...]
    figures: dict[str, float]
    best_layer: str | None = None


def read_run(path: Path, method: str | None = None) -> Run:
    """Read a benchmark's run folder: the host's, ``pirl-plugin knn``'s or a detection's.

    Args:
        path: folder with ``train_config.yaml``, as the host leaves it, or with ``results.json``.
        method: the row it belongs to; read from the run that made its checkpoint where None.

    Raises:
        FileNotFoundError: it is no folder of a run.
        ValueError: the run is not finished, or of no benchmark of the tables.
    """
    results = path / "results.json"
    if results.is_file():
        return _read_results(path, json.loads(results.read_text()), method)
    if not (path / "train_config.yaml").is_file():
        raise FileNotFoundError(
            f"{path} is no folder of a run: it has neither results.json nor train_config.yaml"
        )
    config = yaml.safe_load((path / "train_config.yaml").read_text())
    name = method or _method_of(config, path)
    tables = _TABLES.get(name, (2, 7))
    if config["MODEL"]["FEATURE_EVAL_SETTINGS"]["EXTRACT_TRUNK_FEATURES_ONLY"]:
        found = _svm_map(path, config)
        layer = max(found, key=lambda layer: found[layer])
        return Run(path, name, tables, {"VOC07": found[layer]}, layer)
    dataset = str(config["DATA"]["TRAIN"]["DATASET_NAMES"][0])
    meter = last_test(path)
    for percent in ("1percent", "10percent"):
        if dataset.endswith(f"_{percent}"):
            column = percent.replace("percent", " %")
            return Run(path, name, (3,), {column: meter["top_5"]["0"]})
    column = next((c for key, c in _LINEAR.items() if key in dataset), "")
    if not column or not config["MODEL"]["FEATURE_EVAL_SETTINGS"]["EVAL_MODE_ON"]:
        raise ValueError(f"{path} is a run on '{dataset}', which is in no table of the paper")
    layers = {layer: float(value) for layer, value in meter["top_1"].items()}
    best = max(layers, key=lambda layer: layers[layer])
    figures = {column: layers[best]}
    figures |= {f"{column} {layer}": layers[layer] for layer in LAYERS if layer in layers}
    return Run(path, name, tables, figures, best)


def _read_results(path: Path, results: dict[str, Any], method: str | None) -> Run:
    if "knn_top1" in results:
        name = method or Path(results.get("checkpoint", path)).resolve().parent.name
        return Run(path, name, (), {"kNN": float(results["knn_top1"])})
    if "mean" not in results or "config" not in results:
        raise ValueError(
            f"{path}/results.json has neither knn_top1 nor the config and mean of a detection run: "
            f"it is of no benchmark of the tables"
        )
    config = Path(results["config"]).stem
    if config not in _DETECTION:
        raise ValueError(
            f"{path} is a detection run of {config}, which is in no table of the paper; "
            f"expected one of {', '.join(_DETECTION)}"
        )
    mean = results["mean"]
    if mean is None:
        raise ValueError(f"{path}: no trial finished: run the same command again")
    table, row = _DETECTION[config]
    name = method or _method_detected(path, config, results.get("weights"), row)
    return Run(path, name, (table,), {key: float(mean[key]) for key in ("AP", "AP50", "AP75")})


def _method_detected(path: Path, config: str, weights: str | None, row: str | None) -> str:
    """Row of a detection run: of the run that made its weights, or else of its configuration."""
    made = Path(weights).parent / "train_config.yaml" if weights else None
    if made is not None and made.is_file():
        name = _method_made(made, path.name)
        return f"{name} (BatchNorm fine-tuned)" if config == "voc0712_moco24k" else name
    if row is None:
        raise ValueError(
            f"{path} is a detection run of {config}, which has several rows, and there is no "
            f"train_config.yaml beside its weights {weights}: give ROW=RUN, such as Jigsaw={path}"
        )
    return row


def _svm_map(path: Path, config: dict[str, Any]) -> dict[str, float]:
    """Mean average precision of each layer, percent; low-shot runs are in no table."""
    pools = config["MODEL"]["FEATURE_EVAL_SETTINGS"]["LINEAR_EVAL_FEAT_POOL_OPS_MAP"]
    files = {layer: path / layer / "test_ap.npy" for layer, _ in pools}
    missing = [str(file) for file in files.values() if not file.is_file()]
    if missing:
        raise ValueError(f"{path} is not finished, or a low-shot run: there is no {missing[0]}")
    return {layer: 100 * float(np.load(file).mean()) for layer, file in files.items()}


def _method_of(config: dict[str, Any], path: Path) -> str:
    """Row of a benchmark, told by the run that made its checkpoint."""
    if config["MODEL"]["TRUNK"]["NAME"] == "pirl_ensemble":
        return "PIRL-ens"
    checkpoint = config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"]
    if not checkpoint:
        return "Random"
    file = Path(checkpoint).parent / "train_config.yaml"
    return _method_made(file, path.name) if file.is_file() else path.name


def _method_made(file: Path, other: str) -> str:
    """Row told by the configuration of a pre-training; ``other`` if its settings are of no row."""
    made = yaml.safe_load(file.read_text())
    train, trunk = made["DATA"]["TRAIN"], made["MODEL"]["TRUNK"]
    transform = train["TRANSFORMS"][0]
    task, width = _TASKS.get(transform["name"]), trunk["RESNETS"]["WIDTH_MULTIPLIER"]
    yfcc = any("yfcc" in name for name in train["DATASET_NAMES"])
    if trunk["NAME"] != "resnet" or trunk["RESNETS"]["DEPTH"] != 50 or width not in (1, 2):
        return other
    if made["LOSS"]["name"] != "pirl_loss":
        if task not in ("Jigsaw", "Rotation") or width != 1:
            return other
        return task if not yfcc else "Jigsaw (YFCC-1M)" if task == "Jigsaw" else other
    loss = made["LOSS"]["pirl_loss"]
    weight, negatives = loss["lambda_invariance"], loss["num_negatives"]
    if negatives not in (4096, 32000):
        return other
    if weight == 0 and width == 1 and not yfcc:
        return "NPID++" if negatives == 32000 else "NPID"
    if weight != 0.5 or task is None or transform.get("num_permutations") is not None:
        return other
    if yfcc or width == 2:
        row = "PIRL (YFCC-1M)" if yfcc else "PIRL-c2x"
        return other if task != "PIRL" or (yfcc and width == 2) else row
    return "PIRL (Jigsaw)" if task == "PIRL" and negatives == 4096 else task
