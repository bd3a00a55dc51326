"""``pirl-plugin results``: finished runs in the form of the paper's tables.

A run fills a row of the paper if its settings, and the settings of its checkpoint's pre-training,
equal the configs of this row. Any other run gets its own row, with the keys that differ.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pirl_plugin.checkpoints.training_run import RUN_CONFIG, read_config, run_config, run_settings
from pirl_plugin.evaluation.linear_run import epochs_trained, linear_accuracy, svm_map
from pirl_plugin.evaluation.published import DETECTION_ROWS, LAYERS, published_tables
from pirl_plugin.failures import Refused
from pirl_plugin.files import write_text
from pirl_plugin.vissl.import_hook import finder

_JIGSAW = "config=pretrain/pirl/jigsaw_8node"
_BASELINE = "config=pretrain/pirl/jigsaw_baseline_8node"
PRETRAININGS: dict[str, tuple[str, ...]] = {  # row → overrides of its pre-training
    "PIRL": (_JIGSAW,),
    "PIRL-c2x": (_JIGSAW, "+config/pirl/models=resnet50_c2x"),
    "PIRL (YFCC-1M)": (_JIGSAW, "+config/pirl/datasets=yfcc1m"),
    "PIRL (Jigsaw)": (_JIGSAW, "+config/pirl/epochs=analysis_400"),
    "PIRL (Rotation)": ("config=pretrain/pirl/rotation_8node",),
    "PIRL (Rotation + Jigsaw)": ("config=pretrain/pirl/rotation_jigsaw_8node",),
    "NPID++": ("config=pretrain/pirl/npidpp_8node",),
    "NPID": ("config=pretrain/pirl/npid_8node",),
    "Jigsaw": (_BASELINE,),
    "Jigsaw (YFCC-1M)": (_BASELINE, "+config/pirl/datasets=yfcc1m"),
    "Rotation": ("config=pretrain/pirl/rotation_baseline_8node",),
}
BENCHMARKS = {  # data set → column, and the config of its benchmark
    "imagenet1k": ("ImageNet", "linear_imagenet1k"),
    "places205": ("Places205", "linear_places205"),
    "inaturalist18": ("iNaturalist-2018", "linear_inaturalist18"),
    "imagenet1k_1percent": ("1 %", "semi_supervised_imagenet1k_1percent"),
    "imagenet1k_10percent": ("10 %", "semi_supervised_imagenet1k_10percent"),
    "voc07": ("VOC07", "svm_voc07"),
}
# Settings that may differ.
_FREE = ("SEED_VALUE", "MODEL.WEIGHTS_INIT", "MODEL.TRUNK.PIRL_ENSEMBLE")
_PHASE = re.compile(r"model_(?:final_checkpoint_)?phase(\d+)\.torch")
_TORCHVISION = re.compile(r"resnet50-[0-9a-f]{8}\.pth")
Differences = dict[str, tuple[object, object]]
"""Key → value of the run, and value of the row."""


@dataclass(frozen=True)
class Run:
    """Figures of one finished run."""

    path: Path
    row: str  # row of the paper's tables, or the name of the checkpoint's folder
    tables: tuple[int, ...]  # numbers of the paper's tables with this row
    figures: dict[str, float]  # column → percent; the column of a layer is "ImageNet res5"
    layer: str | None = None  # the best of several layers
    differs: Differences = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The row's name, or the folder with the first keys that differ."""
        said = [f"{key} {mine} ({theirs})" for key, (mine, theirs) in self.differs.items()]
        more = f" and {len(said) - 3} more" if len(said) > 3 else ""
        return (
            f"{self.path.name}, not {self.row}: {', '.join(said[:3])}{more}" if said else self.row
        )


def read_run(path: Path) -> Run:
    """Read the folder of a benchmark of the host or of a detection.

    Args:
        path: folder with ``train_config.yaml`` or ``results.json``.

    Raises:
        FileNotFoundError: it is not the folder of a run.
        ValueError: the run is not finished, or is not a benchmark of the paper.
    """
    if (path / "results.json").is_file():
        return _read_detection(path, json.loads((path / "results.json").read_text()))
    config = read_config(path / RUN_CONFIG)
    evaluation, data = config["MODEL"]["FEATURE_EVAL_SETTINGS"], _data_set(config)
    labelled = evaluation["EVAL_MODE_ON"] or config["DATA"]["TRAIN"].get("LABEL_SOURCES")
    if not labelled or data not in BENCHMARKS:
        raise Refused(f"{path}: expected a benchmark on one of {', '.join(BENCHMARKS)}")
    column, name = BENCHMARKS[data]
    svm = evaluation["EXTRACT_TRUNK_FEATURES_ONLY"]
    layers = svm_map(path, config) if svm else linear_accuracy(path)
    best = max(layers, key=lambda layer: layers[layer])
    figures = {column: layers[best]}
    if name.startswith("semi_supervised"):
        figures = {column: linear_accuracy(path, 5)[best]}
    elif not svm:
        figures |= {f"{column} {layer}": layers[layer] for layer in LAYERS if layer in layers}
    found, differ = _origin(config)
    overrides = [f"config=benchmark/pirl/{name}"]
    if found == "PIRL-ens":
        overrides = ["config=benchmark/pirl/ensemble_imagenet1k"]
    elif found == "PIRL-c2x":
        overrides.append("+config/pirl/linear=resnet50_c2x")
    differ |= _differences(config, compose(*overrides))
    if not svm and (done := epochs_trained(path)) != config["OPTIMIZER"]["num_epochs"]:
        differ["epochs done"] = (done, config["OPTIMIZER"]["num_epochs"])
    tables = [t for t in published_tables() if set(figures) & set(t["columns"])]
    numbers = tuple(t["number"] for t in tables if found in t["rows"]) or (tables[0]["number"],)
    return Run(path, found, numbers, figures, best if best in LAYERS else None, differ)


def _read_detection(path: Path, results: dict[str, Any]) -> Run:
    config = Path(results.get("config", "")).stem
    if config not in DETECTION_ROWS or results["mean"] is None:
        raise Refused(f"{path}: expected finished trials of {', '.join(DETECTION_ROWS)}")
    number, rows = DETECTION_ROWS[config]
    found, differ = _origin_of(results.get("weights") or "unknown")
    if config == "voc0712_moco24k":
        found += " (BatchNorm fine-tuned)"
    elif found not in rows:
        differ["config"] = (config, f"that of {found}")
    options = iter(results.get("options") or [])
    differ |= {
        key: (value, "as in the config")
        for key, value in zip(options, options, strict=True)
        if key not in ("SEED", "OUTPUT_DIR", "MODEL.DEVICE", "DATALOADER.NUM_WORKERS", "VIS_PERIOD")
    }
    if results.get("num_gpus", 8) != 8:  # Detectron2 scales batch, rate and iterations
        differ["num_gpus"] = (results["num_gpus"], 8)
    figures = {key: float(results["mean"][key]) for key in ("AP", "AP50", "AP75")}
    return Run(path, found, (number,), figures, differs=differ)


def _origin(config: dict[str, Any]) -> tuple[str, Differences]:
    """Return the row of the pre-training of a benchmark's weights, and what differs."""
    if config["MODEL"]["TRUNK"]["NAME"] != "pirl_ensemble":
        return _origin_of(config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"])
    files = config["MODEL"]["TRUNK"]["PIRL_ENSEMBLE"]["PARAMS_FILES"]
    members = [_origin_of(file) for file in files]
    if len(set(files)) == 2 and members == [("PIRL", {})] * 2:
        return "PIRL-ens", {}
    return "PIRL-ens", {"members": (members, "two runs of PIRL")}


def _origin_of(checkpoint: str) -> tuple[str, Differences]:
    """Return the nearest row to a checkpoint's pre-training, and what differs."""
    if not checkpoint:
        return "Random", {}
    config = run_config(Path(checkpoint))
    if config is None:
        if _TORCHVISION.fullmatch(Path(checkpoint).name):
            return "Supervised", {}
        return Path(checkpoint).parent.name, {"pre-training": (checkpoint, "unknown")}
    if config["MODEL"]["FEATURE_EVAL_SETTINGS"]["EVAL_MODE_ON"]:  # a benchmark's own checkpoint
        return _origin_of(config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"])
    rows = {name: _differences(config, compose(*given)) for name, given in PRETRAININGS.items()}
    nearest = min(rows, key=lambda name: len(rows[name]))
    differ = rows[nearest]
    images = (config["LOSS"].get("pirl_loss") or {}).get("num_train_samples") or -1
    if _data_set(config) == "imagenet1k" and images > 0 and images != 1_281_167:
        differ["images"] = (images, 1_281_167)
    phase, wanted = _PHASE.fullmatch(Path(checkpoint).name), config["OPTIMIZER"]["num_epochs"]
    if phase and int(phase[1]) + 1 != wanted:
        differ["epochs done"] = (int(phase[1]) + 1, wanted)
    return nearest, {f"pre-training {key}": values for key, values in differ.items()}


@cache
def compose(*overrides: str) -> dict[str, Any]:
    """Compose a configuration of the host as its own script does."""
    finder.install()
    from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

    paths = [f"config.DATA.{split}.DATA_PATHS=[nowhere]" for split in ("TRAIN", "TEST")]
    composed = compose_hydra_configuration([*paths, *overrides])
    config: dict[str, Any] = convert_to_attrdict(composed, dump_config=False)[1]
    return config


def _differences(config: dict[str, Any], wanted: dict[str, Any]) -> Differences:
    mine, theirs = _settings(config), _settings(wanted)
    pairs = {key: (mine.get(key), theirs.get(key)) for key in {**theirs, **mine}}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _settings(config: dict[str, Any]) -> dict[str, object]:
    """Return the settings that define a row: dotted key → value."""
    svm = config["MODEL"]["FEATURE_EVAL_SETTINGS"]["EXTRACT_TRUNK_FEATURES_ONLY"]
    unread = (*_FREE, "OPTIMIZER", "LOSS", "MODEL.HEAD") if svm else _FREE
    settings = run_settings(config).items()
    found = {key: json.loads(value) for key, value in settings if not key.startswith(unread)}
    found["data set"] = _data_set(config)
    if not svm:
        nodes, batch = config["DISTRIBUTED"], config["DATA"]["TRAIN"]["BATCHSIZE_PER_REPLICA"]
        found["global batch"] = batch * nodes["NUM_NODES"] * nodes["NUM_PROC_PER_NODE"]
    return found


def _data_set(config: dict[str, Any]) -> str:
    found = []
    for name in map(str, config["DATA"]["TRAIN"]["DATASET_NAMES"]):
        short = re.sub(r"^pirl_|_(folder|filelist)$", "", name)
        found.append(short if short in (*BENCHMARKS, "yfcc1m") else name)
    return "+".join(found)


def lay_out(runs: list[Run]) -> list[dict[str, Any]]:
    """Arrange runs in the paper's seven tables.

    Returns:
        For each table its ``number``, ``title``, ``columns`` and ``rows``. A row has a ``method``
        and ``differs`` (key → values of run and row). For each column, it has ``published`` and
        ``measured`` (a number or None, the mean of several runs), ``spread`` (their standard
        deviation) and ``runs`` (folder and best layer).
    """
    tables: list[dict[str, Any]] = []
    for table in published_tables():
        columns = table["columns"]
        groups: dict[tuple[str, str], list[Run]] = {(name, "{}"): [] for name in table["rows"]}
        for run in runs:
            if table["number"] in run.tables and set(columns) & set(run.figures):
                groups.setdefault((run.row, str(run.differs)), []).append(run)
        rows = []
        for (method, differs), found in groups.items():
            published = table["rows"].get(method) if differs == "{}" else None
            label = method if published else found[0].label
            rows.append(_row(label, published or [None] * len(columns), columns, found))
        tables.append({**table, "rows": rows})
    return tables


def _row(
    method: str, published: Sequence[float | None], columns: list[str], runs: list[Run]
) -> dict[str, Any]:
    found = [[run for run in runs if column in run.figures] for column in columns]
    values = [[r.figures[name] for r in each] for name, each in zip(columns, found, strict=True)]
    return {
        "method": method,
        "published": list(published),
        "measured": [statistics.fmean(each) if each else None for each in values],
        "spread": [statistics.stdev(each) if len(each) > 1 else None for each in values],
        "runs": [[{"run": str(r.path), "layer": r.layer} for r in each] for each in found],
        "differs": {k: [str(v) for v in pair] for run in runs for k, pair in run.differs.items()},
    }


def markdown(tables: list[dict[str, Any]]) -> str:
    """Return tables as Markdown, with a column of measured figures after each published column."""
    parts = []
    for table in tables:
        heads = [name for column in table["columns"] for name in (column, "here")]
        title = f"### Table {table['number']}. {table['title']}"
        lines = [title, "", f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        for row in table["rows"]:
            cells = [row["method"]]
            figures = (row[name] for name in ("published", "measured", "spread", "runs"))
            for published, measured, spread, runs in zip(*figures, strict=True):
                several = f" ± {spread:.1f} ({len(runs)} runs)" if spread is not None else ""
                cells += [_number(published), _number(measured) + several]
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def main(arguments: list[str]) -> int:
    """Run the command; return the exit status, 1 if a folder could not be read."""
    parser = argparse.ArgumentParser(
        prog="pirl-plugin results",
        description="Print the paper's tables with the figures of finished runs.",
        epilog="Example: pirl-plugin results runs/linear runs/svm",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", type=Path, help="folder of a benchmark")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--out", type=Path, help="folder for results.md and results.json")
    options = parser.parse_args(arguments)
    runs: dict[Path, Run] = {}
    status = 0
    for folder in options.runs:
        try:
            runs[folder.resolve()] = read_run(folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            status = 1
            print(f"pirl_plugin: {folder}: {type(error).__name__}: {error}", file=sys.stderr)
    if not runs:
        raise Refused(f"{options.runs}: expected folders of finished runs; name at least one")
    tables = lay_out(list(runs.values()))
    text = json.dumps({"tables": tables}, indent=2)
    if options.out is not None:
        write_text(options.out / "results.md", markdown(tables) + "\n")
        write_text(options.out / "results.json", text + "\n")
    measured = [t for t in tables if any(v is not None for r in t["rows"] for v in r["measured"])]
    print(text if options.json else markdown(measured))
    return status
