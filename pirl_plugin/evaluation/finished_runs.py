"""What a finished run measured, and which row and columns of the paper's tables it belongs to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

LAYERS = ("conv1", "res2", "res3", "res4", "res5")
_LINEAR = {  # data set's name in the configuration → column
    "imagenet1k": "ImageNet",
    "places205": "Places205",
    "inaturalist18": "iNaturalist-2018",
    "voc07": "VOC07",
}
_TASKS = {
    "PIRLRotation": "PIRL (Rotation)",
    "PIRLRotationJigsaw": "PIRL (Rotation + Jigsaw)",
    "PredictJigsaw": "Jigsaw",
    "PredictRotation": "Rotation",
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
    name, table = (method, None) if method else _method_of(config, path)
    if config["MODEL"]["FEATURE_EVAL_SETTINGS"]["EXTRACT_TRUNK_FEATURES_ONLY"]:
        found = _svm_map(path, config)
        layer = max(found, key=lambda layer: found[layer])
        return Run(path, name, (table or 2,), {"VOC07": found[layer]}, layer)
    if not list(path.glob("model_final_checkpoint*")):
        raise ValueError(f"{path} is not finished: it has no model_final_checkpoint")
    dataset = str(config["DATA"]["TRAIN"]["DATASET_NAMES"][0])
    meter = _last_meter(path)
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
    return Run(path, name, (table,) if table else (2, 7), figures, best)


def _read_results(path: Path, results: dict[str, Any], method: str | None) -> Run:
    if "knn_top1" in results:
        name = method or Path(results.get("checkpoint", path)).resolve().parent.name
        return Run(path, name, (), {"kNN": float(results["knn_top1"])})
    mean = results.get("mean") or results
    config = str(results.get("config") or path.name).lower()
    if "AP" not in mean:
        raise ValueError(
            f"{path}/results.json has neither knn_top1 nor AP: it is of no benchmark of the tables"
        )
    table = 1 if any(part in config for part in ("0712", "07+12", "07_12")) else 6
    names = {"pirl": "PIRL", "npid": "NPID++", "jigsaw": "Jigsaw", "rotation": "Rotation"}
    names |= {"supervised": "Supervised", "random": "Random"}
    name = method or next((n for part, n in names.items() if part in config), path.name)
    return Run(path, name, (table,), {key: float(mean[key]) for key in ("AP", "AP50", "AP75")})


def _svm_map(path: Path, config: dict[str, Any]) -> dict[str, float]:
    """Mean average precision of each layer, percent; low-shot runs are in no table."""
    pools = config["MODEL"]["FEATURE_EVAL_SETTINGS"]["LINEAR_EVAL_FEAT_POOL_OPS_MAP"]
    files = {layer: path / layer / "test_ap.npy" for layer, _ in pools}
    missing = [str(file) for file in files.values() if not file.is_file()]
    if missing:
        raise ValueError(f"{path} is not finished, or a low-shot run: there is no {missing[0]}")
    return {layer: 100 * float(np.load(file).mean()) for layer, file in files.items()}


def _last_meter(path: Path) -> dict[str, dict[str, float]]:
    lines = [json.loads(line) for line in (path / "metrics.json").read_text().splitlines()]
    tested = [line for line in lines if "test_accuracy_list_meter" in line]
    if not tested:
        raise ValueError(f"{path}/metrics.json has no test accuracy; was TEST_MODEL off?")
    meter: dict[str, dict[str, float]] = tested[-1]["test_accuracy_list_meter"]
    return meter


def _method_of(config: dict[str, Any], path: Path) -> tuple[str, int | None]:
    """Row, and table where it is a particular one, from the configuration of the pre-training."""
    if config["MODEL"]["TRUNK"]["NAME"] == "pirl_ensemble":
        return "PIRL-ens", 2
    checkpoint = config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"]
    if not checkpoint:
        return "Random", None
    file = Path(checkpoint).parent / "train_config.yaml"
    if not file.is_file():
        return path.name, None
    made = yaml.safe_load(file.read_text())
    train, loss = made["DATA"]["TRAIN"], made["LOSS"].get("pirl_loss") or {}
    task = _TASKS.get(train["TRANSFORMS"][0]["name"], "PIRL")
    if made["LOSS"]["name"] != "pirl_loss":
        return (task, None) if task in ("Jigsaw", "Rotation") else (path.name, None)
    if any("yfcc" in name for name in train["DATASET_NAMES"]):
        return "PIRL (YFCC-1M)", 4
    if loss["lambda_invariance"] == 0:
        return ("NPID++" if loss["num_negatives"] >= 32000 else "NPID"), None
    if made["MODEL"]["TRUNK"].get("RESNETS", {}).get("WIDTH_MULTIPLIER", 1) == 2:
        return "PIRL-c2x", 2
    if task == "PIRL" and loss["num_negatives"] == 4096:
        return "PIRL (Jigsaw)", 5
    return task, (None if task == "PIRL" else 5)
