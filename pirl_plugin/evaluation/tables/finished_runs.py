"""What a finished run measured, and which row and columns of the paper's tables it belongs to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pirl_plugin.checkpoints.settings import epochs
from pirl_plugin.checkpoints.training_run import RUN_CONFIG, read_config
from pirl_plugin.evaluation.linear_run import epochs_trained, last_test, svm_map
from pirl_plugin.evaluation.tables.compare_settings import (
    Differences,
    data_set,
    describe,
    differences,
    settings_key,
    settings_of,
)
from pirl_plugin.evaluation.tables.detection_run import (
    allowed_rows,
    detection_differences,
    schedule_differences,
)
from pirl_plugin.evaluation.tables.paper_settings.benchmarks import BENCHMARKS, TRUNKS
from pirl_plugin.evaluation.tables.paper_settings.common import VOC07
from pirl_plugin.evaluation.tables.paper_settings.free import FREE, LINEAR_FREE, SVM_FREE
from pirl_plugin.evaluation.tables.paper_settings.pretraining import PRETRAINING
from pirl_plugin.evaluation.tables.published import LAYERS
from pirl_plugin.evaluation.tables.run_origin import (
    UNKNOWN,
    Origin,
    configs_before,
    data_paths,
    earlier_differences,
    image_differences,
    origin_of,
)

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


@dataclass(frozen=True)
class FinishedRun:
    """Figures of one run.

    Attributes:
        path: its folder.
        method: name of its row, such as ``PIRL``.
        tables: numbers of the paper's tables that have its row; none of own data and kNN.
        figures: column → percent. A layer's figures are called ``ImageNet res5``.
        best_layer: the layer that was reported, where there are several.
        differs: in what it is not of the row that ``method`` begins with; empty for a paper's row.
        identity: the same text for runs that may be averaged.
        data: own data set, whose table it belongs to.
    """

    path: Path
    method: str
    tables: tuple[int, ...]
    figures: dict[str, float]
    best_layer: str | None = None
    differs: Differences = field(default_factory=dict)
    identity: str = ""
    data: str | None = None


def read_run(path: Path, method: str | None = None) -> FinishedRun:
    """Read a benchmark's run folder: the host's, ``pirl-plugin knn``'s or a detection's.

    Args:
        path: folder with ``train_config.yaml``, as the host leaves it, or with ``results.json``.
        method: the row it belongs to; read from the run that made its checkpoint where None. A
            paper's row is believed only as to what the files do not say.

    Raises:
        FileNotFoundError: it is no folder of a run.
        ValueError: the run is not finished, or measured nothing that a table holds.
    """
    results = path / "results.json"
    if results.is_file():
        return _read_results(path, json.loads(results.read_text()), method)
    if not (path / RUN_CONFIG).is_file():
        raise FileNotFoundError(
            f"{path} is no folder of a run: it has neither results.json nor {RUN_CONFIG}"
        )
    config = read_config(path / RUN_CONFIG)
    evaluation = config["MODEL"]["FEATURE_EVAL_SETTINGS"]
    if not evaluation["EVAL_MODE_ON"] and not config["DATA"]["TRAIN"].get("LABEL_SOURCES"):
        raise ValueError(
            f"{path} is a pre-training: expected the folder of a benchmark; measure its checkpoint "
            f"with one, or with pirl-plugin knn"
        )
    data = data_set(config["DATA"]["TRAIN"]["DATASET_NAMES"])
    column = data if data in BENCHMARKS else data.removesuffix(" of ImageNet")
    best: str | None
    if evaluation["EXTRACT_TRUNK_FEATURES_ONLY"]:
        free, layers = SVM_FREE, svm_map(path, config)
        best = max(layers, key=lambda layer: layers[layer])
        figures = {VOC07 if column == VOC07 else "mAP": layers[best]}
    else:
        free, meter = LINEAR_FREE, last_test(path)
        layers = {layer: float(value) for layer, value in meter["top_1"].items()}
        best = max(layers, key=lambda layer: layers[layer])
        if column in ("1 %", "10 %"):
            figures, best = {column: float(meter["top_5"][best])}, None
        else:
            name = column if column in BENCHMARKS and evaluation["EVAL_MODE_ON"] else "top-1"
            figures = {name: layers[best]}
            figures |= {f"{name} {layer}": layers[layer] for layer in LAYERS if layer in layers}
            best = best if best in LAYERS else None
    found, origin = settings_of(config), _origin(config)
    text = settings_key(found, [*FREE, *free]) + origin.identity
    if not set(figures) & set(BENCHMARKS):
        paths = data_paths(config["DATA"]["TRAIN"])
        tested = data_paths(config["DATA"].get("TEST", {}))
        own = f"{data} in {', '.join(paths) or 'the catalog'}"
        before = "".join(
            settings_key(settings_of(one), [*FREE, *free]) for one in configs_before(path)
        )
        text += f"{paths}{tested}{before}"
        label = method or _own_label(origin, path)
        return FinishedRun(path, label, (), figures, best, origin.differs, text, own)
    row, differ = _claimed(method, origin)
    fixed = BENCHMARKS[column] | TRUNKS.get(row or "", {}).get(column, {})
    differ |= differences(found, fixed, [*FREE, *free])
    differ |= earlier_differences(path, fixed, [*FREE, *free])
    if free is LINEAR_FREE and (done := epochs_trained(path)) != (wanted := epochs(config)):
        differ["epochs done"] = (done, wanted)  # the configuration is not what the run had
    splits = ("TRAIN", "TEST") if free is LINEAR_FREE else ()
    differ |= image_differences(config, path, data, splits)
    tables = (3,) if column in ("1 %", "10 %") else _TABLES.get(row or "", (2, 7))
    return FinishedRun(path, _label(row, differ, path), tables, figures, best, differ, text)


def _claimed(method: str | None, origin: Origin) -> tuple[str | None, Differences]:
    """The row of a run, and in what its pre-training is not that row's.

    What the user says goes for weights of unknown origin, such as the supervised baseline's.
    """
    if method is None or method == origin.row:
        return origin.row, dict(origin.differs)
    if origin.row is None:
        return method, {}
    if method in PRETRAINING or method in TRUNKS or not origin.differs:
        return method, {**origin.differs, "pre-training": (f"nearest to {origin.row}", method)}
    return method, dict(origin.differs)


def _label(row: str | None, differ: Differences, path: Path) -> str:
    if not differ:
        return row or path.name
    shown = dict(list(differ.items())[:3])
    more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
    named = f"not {row}: " if row else ""
    return f"{path.name}, {named}{describe(shown)}{more}"


def _own_label(origin: Origin, path: Path) -> str:
    if origin.row is None:
        return path.name
    return (
        origin.row if not origin.differs else f"{path.name} (pre-training nearest to {origin.row})"
    )


def _origin(config: dict[str, Any]) -> Origin:
    """Where a benchmark's weights come from; of an ensemble, where each member's do."""
    if config["MODEL"]["TRUNK"]["NAME"] != "pirl_ensemble":
        return origin_of(config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"])
    files = config["MODEL"]["TRUNK"]["PIRL_ENSEMBLE"]["PARAMS_FILES"]
    members = [origin_of(file) for file in files]
    differ: Differences = {}
    if len(files) != 2 or len(set(files)) != len(files):
        given = f"{len(files)}, of which {len(set(files))} differ"
        differ["members"] = (given, "two different checkpoints")
    for number, member in enumerate(members, 1):
        for key, values in member.differs.items():
            differ[f"member {number} {key}"] = values
        if member.row is not None and member.row != "PIRL":
            differ[f"member {number}"] = (member.row, "PIRL")
    return Origin("PIRL-ens", differ, " and ".join(member.identity for member in members))


def _read_results(path: Path, results: dict[str, Any], method: str | None) -> FinishedRun:
    if "knn_top1" in results:
        checkpoint = str(results.get("checkpoint", ""))
        name = method or Path(checkpoint or path).resolve().parent.name
        measured = {k: v for k, v in results.items() if k not in ("knn_top1", "checkpoint")}
        text = json.dumps(measured, sort_keys=True) + origin_of(checkpoint).identity
        return FinishedRun(path, name, (), {"kNN": float(results["knn_top1"])}, identity=text)
    if "mean" not in results or "config" not in results:
        raise ValueError(
            f"{path}/results.json has neither knn_top1 nor the config and mean of a detection run: "
            f"it is of no benchmark of the tables"
        )
    table, _ = allowed_rows(results["config"])
    mean = results["mean"]
    if mean is None:
        raise ValueError(f"{path}: no trial finished: run the same command again")
    origin = origin_of(results.get("weights") or UNKNOWN)
    row, differ = _claimed(method, origin)
    differ |= detection_differences(path, results)
    if Path(results["config"]).stem == "voc0712_moco24k" and row in PRETRAINING:
        row = f"{row} (BatchNorm fine-tuned)"
    elif row is not None:
        differ |= schedule_differences(results["config"], row)
    figures = {key: float(mean[key]) for key in ("AP", "AP50", "AP75")}
    same = {key: results.get(key) for key in ("config", "config_sha256", "options", "num_gpus")}
    text = json.dumps(same) + origin.identity
    return FinishedRun(
        path, _label(row, differ, path), (table,), figures, differs=differ, identity=text
    )
