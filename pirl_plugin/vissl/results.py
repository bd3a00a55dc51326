"""``pirl-plugin results``: finished runs in the form of the paper's tables.

A run fills a row of the paper if its settings, and those of the pre-training that made its
checkpoint, are what the row's named configs compose to. Any other run has a row of its own, which
names the keys that differ.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.training_run import RUN_CONFIG, read_config, run_config_file
from pirl_plugin.evaluation.linear_run import epochs_trained, last_test, linear_top1, svm_map
from pirl_plugin.evaluation.published import DETECTION_ROWS, LAYERS, published_tables
from pirl_plugin.files import write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

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
_FIXED = (  # sections and keys that a row fixes
    *("LOSS", "OPTIMIZER", "HOOKS.PIRL_INPUT", "SVM", "MODEL.TRUNK", "MODEL.HEAD"),
    *("MODEL.FEATURE_EVAL_SETTINGS", "MODEL.AMP_PARAMS.USE_AMP", "MODEL.GRAD_CLIP"),
    *("MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN", "DATA.TRAIN.DATA_LIMIT"),
    *("DATA.TRAIN.DROP_LAST", "DATA.TRAIN.TRANSFORMS", "DATA.TEST.TRANSFORMS"),
)
_FREE = re.compile(  # keys in them that may differ
    r"\.bank\.(seed|placement)|num_train_samples|auto_lr_scaling|PIRL_ENSEMBLE|channels_last|compile"
)
_PHASE = re.compile(r"model_(?:final_checkpoint_)?phase(\d+)\.torch")
_TORCHVISION = re.compile(r"resnet50-[0-9a-f]{8}\.pth")
Differences = dict[str, tuple[object, object]]
"""Key → what the run has, and what the row has."""


@dataclass(frozen=True)
class Run:
    """Figures of one finished run."""

    path: Path
    row: str  # of the paper's tables, or the name of its checkpoint's folder
    tables: tuple[int, ...]  # of the paper that have the row; none of own data and kNN
    figures: dict[str, float]  # column → percent; a layer's are called "ImageNet res5"
    layer: str | None = None  # the best, where there are several
    differs: Differences = field(default_factory=dict)
    title: str | None = None  # of the table, where it is none of the paper's

    @property
    def label(self) -> str:
        """The row's name, or the folder with the first keys that differ."""
        said = [f"{key} {mine} ({theirs})" for key, (mine, theirs) in self.differs.items()]
        more = f" and {len(said) - 3} more" if len(said) > 3 else ""
        return (
            f"{self.path.name}, not {self.row}: {', '.join(said[:3])}{more}" if said else self.row
        )


def read_run(path: Path, row: str | None = None) -> Run:
    """Read the folder of a benchmark of the host, of ``pirl-plugin knn`` or of a detection.

    Args:
        path: folder with ``train_config.yaml`` or ``results.json``.
        row: name of its row where no ``train_config.yaml`` beside the checkpoint says it.

    Raises:
        FileNotFoundError: it is not the folder of a run.
        ValueError: the run is not finished, or is a pre-training.
    """
    if (path / "results.json").is_file():
        return _read_results(path, json.loads((path / "results.json").read_text()), row)
    if not (path / RUN_CONFIG).is_file():
        raise FileNotFoundError(f"{path}: expected results.json or {RUN_CONFIG}; name a run")
    config = read_config(path / RUN_CONFIG)
    evaluation = config["MODEL"]["FEATURE_EVAL_SETTINGS"]
    if not evaluation["EVAL_MODE_ON"] and not config["DATA"]["TRAIN"].get("LABEL_SOURCES"):
        raise ValueError(f"{path} is a pre-training: expected the folder of a benchmark")
    data = _data_set(config)
    column, name = BENCHMARKS.get(data, ("top-1", ""))
    if evaluation["EXTRACT_TRUNK_FEATURES_ONLY"]:
        layers = svm_map(path, config)
        column = column if name else "mAP"
    else:
        layers = linear_top1(path)
    best = max(layers, key=lambda layer: layers[layer])
    figures = {column: layers[best]}
    if column in ("1 %", "10 %"):
        figures = {column: float(last_test(path)["top_5"][best])}
    elif column != "VOC07":
        figures |= {f"{column} {layer}": layers[layer] for layer in LAYERS if layer in layers}
    best_layer = best if best in LAYERS else None
    found, differ = _origin(config, row)
    if not name:
        paths = ", ".join(map(str, config["DATA"]["TRAIN"].get("DATA_PATHS") or [])) or "catalog"
        title = f"Linear models on {data} in {paths}, percent; not in the paper"
        return Run(path, found, (), figures, best_layer, differ, title)
    overrides = [f"config=benchmark/pirl/{name}"]
    if found == "PIRL-ens":
        overrides = ["config=benchmark/pirl/ensemble_imagenet1k"]
    elif found == "PIRL-c2x":
        overrides.append("+config/pirl/linear=resnet50_c2x")
    differ |= _differences(config, compose(*overrides))
    if column != "VOC07":
        done, wanted = epochs_trained(path), config["OPTIMIZER"]["num_epochs"]
        differ |= {"epochs done": (done, wanted)} if done != wanted else {}
    tables: tuple[int, ...] = (3,) if column in ("1 %", "10 %") else (2, 4, 5, 7)
    rows = {table["number"]: table["rows"] for table in published_tables()}
    tables = tuple(number for number in tables if found in rows[number]) or tables[:1]
    return Run(path, found, tables, figures, best_layer, differ)


def _read_results(path: Path, results: dict[str, Any], row: str | None) -> Run:
    if "knn_top1" in results:
        name = row or Path(results.get("checkpoint") or path).parent.name
        title = "k nearest neighbours, top-1; not in the paper"
        return Run(path, name, (), {"kNN": results["knn_top1"]}, title=title)
    config = Path(results["config"]).stem
    if config not in DETECTION_ROWS or results["mean"] is None:
        raise ValueError(f"{path}: expected finished trials of {', '.join(DETECTION_ROWS)}")
    number, rows = DETECTION_ROWS[config]
    found, differ = _origin_of(results.get("weights") or "unknown", row)
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


def _origin(config: dict[str, Any], row: str | None) -> tuple[str, Differences]:
    """Return the row of the pre-training that a benchmark's weights come from."""
    if config["MODEL"]["TRUNK"]["NAME"] != "pirl_ensemble":
        return _origin_of(config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"], row)
    files = config["MODEL"]["TRUNK"]["PIRL_ENSEMBLE"]["PARAMS_FILES"]
    differ: Differences = {} if len(set(files)) == 2 else {"members": (len(set(files)), 2)}
    for number, file in enumerate(files, 1):
        member, found = _origin_of(file, None)
        found |= {} if member == "PIRL" else {"row": (member, "PIRL")}
        differ |= {f"member {number} {key}": values for key, values in found.items()}
    return "PIRL-ens", differ


def _origin_of(checkpoint: str, row: str | None) -> tuple[str, Differences]:
    """Return the row that a checkpoint's pre-training is of or nearest to, and what differs."""
    if not checkpoint:
        return row or "Random", {}
    file = run_config_file(Path(checkpoint))
    if file is None:
        if row or _TORCHVISION.fullmatch(Path(checkpoint).name):
            return row or "Supervised", {}
        return Path(checkpoint).parent.name, {"pre-training": (checkpoint, "unknown")}
    config = read_config(file)
    if config["MODEL"]["FEATURE_EVAL_SETTINGS"]["EVAL_MODE_ON"]:  # a benchmark's own checkpoint
        return _origin_of(config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"], row)
    rows = {name: _differences(config, compose(*given)) for name, given in PRETRAININGS.items()}
    nearest = row if row in rows else min(rows, key=lambda name: len(rows[name]))
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
    from pirl_plugin.vissl import composing

    paths = [f"config.DATA.{split}.DATA_PATHS=[nowhere]" for split in ("TRAIN", "TEST")]
    return composing.compose(*paths, *overrides)


def _differences(config: dict[str, Any], wanted: dict[str, Any]) -> Differences:
    mine, theirs = _settings(config), _settings(wanted)
    pairs = {key: (mine.get(key), theirs.get(key)) for key in {**theirs, **mine}}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _settings(config: dict[str, Any]) -> dict[str, object]:
    """Return dotted key → value of what a row fixes."""
    found: dict[str, object] = {"data set": _data_set(config)}
    unread: tuple[str, ...] = () if config["TEST_MODEL"] else ("DATA.TEST.", "SVM")
    if config["MODEL"]["FEATURE_EVAL_SETTINGS"]["EXTRACT_TRUNK_FEATURES_ONLY"]:
        unread = ("OPTIMIZER", "LOSS", "MODEL.HEAD")
    else:
        nodes = config["DISTRIBUTED"]
        found["global batch"] = (
            config["DATA"]["TRAIN"]["BATCHSIZE_PER_REPLICA"]
            * nodes["NUM_NODES"] * nodes["NUM_PROC_PER_NODE"]
        )  # fmt: skip
    for key in _FIXED:
        node: Any = config
        for name in key.split("."):
            node = (node or {}).get(name)
        found |= {} if key.startswith(unread) else _leaves(node, key)
    return {key: value for key, value in found.items() if not _FREE.search(key)}


def _leaves(node: object, key: str) -> dict[str, object]:
    if not isinstance(node, dict):
        return {key: json.loads(json.dumps(node, default=str))}
    return {
        k: v for name, below in node.items() for k, v in _leaves(below, f"{key}.{name}").items()
    }


def _data_set(config: dict[str, Any]) -> str:
    found = []
    for name in map(str, config["DATA"]["TRAIN"]["DATASET_NAMES"]):
        short = re.sub(r"^pirl_|_(folder|filelist)$", "", name)
        found.append(short if short in (*BENCHMARKS, "yfcc1m") else name)
    return "+".join(found)


def lay_out(runs: list[Run]) -> list[dict[str, Any]]:
    """Lay runs out in the paper's seven tables, then in one for each own data set and for kNN.

    Returns:
        For each table its ``number`` (None where it is not the paper's), ``title``, ``columns``
        and ``rows``. A row has a ``method``, and for each column ``published`` and ``measured``
        (a number or None, the mean of several runs), ``spread`` (their standard deviation) and
        ``runs`` (folder and best layer); and ``differs``: key → values of run and row.
    """
    tables: list[dict[str, Any]] = []
    for table in published_tables():
        columns = table["columns"]
        mine = [r for r in runs if table["number"] in r.tables and set(columns) & set(r.figures)]
        rows = []
        for method, figures in table["rows"].items():
            ours = [run for run in mine if run.row == method and not run.differs]
            rows.append(_row(method, figures, columns, ours))
        rows += _own_rows([r for r in mine if r.differs or r.row not in table["rows"]], columns)
        tables.append({**table, "rows": rows})
    for title in dict.fromkeys(run.title for run in runs if run.title):
        mine = [run for run in runs if run.title == title]
        columns = list(dict.fromkeys(column for run in mine for column in run.figures))
        rows = _own_rows(mine, columns)
        tables.append({"number": None, "title": title, "columns": columns, "rows": rows})
    return tables


def _own_rows(runs: list[Run], columns: list[str]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        alone = str(run.path) if "kNN" in run.figures else ""
        groups.setdefault((run.row + alone, str(run.differs)), []).append(run)
    none = [None] * len(columns)
    return [_row(group[0].label, none, columns, group) for group in groups.values()]


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
    """Write tables as Markdown; beside each published column what was measured here."""
    parts = []
    for table in tables:
        own = table["number"] is None
        heads = [name for column in table["columns"] for name in (column, "here")]
        title = table["title"] if own else f"Table {table['number']}. {table['title']}"
        heads = table["columns"] if own else heads
        lines = [f"### {title}", "", f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        for row in table["rows"]:
            cells = [row["method"]]
            figures = (row[name] for name in ("published", "measured", "spread", "runs"))
            for published, measured, spread, runs in zip(*figures, strict=True):
                cells += [] if own else [_number(published)]
                several = f" ± {spread:.1f} ({len(runs)} runs)" if spread is not None else ""
                cells.append(_number(measured) + several)
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status, 1 where a folder could not be read."""
    parser = argparse.ArgumentParser(
        prog="pirl-plugin results",
        description="Print the paper's tables with what finished runs measured beside them. "
        "Example: pirl-plugin results runs/linear Supervised=runs/linear_torchvision",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="folder of a benchmark; ROW=RUN names the row where the checkpoint does not say it",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--out", type=Path, help="folder for results.md and results.json")
    options = parser.parse_args(arguments)
    runs: dict[Path, Run] = {}
    status = 0
    for argument in options.runs:
        row, _, folder = ("", "", argument) if Path(argument).exists() else argument.rpartition("=")
        try:
            runs[Path(folder).resolve()] = read_run(Path(folder), row or None)
        except (OSError, ValueError, KeyError, TypeError) as error:
            status = 1
            print(f"pirl_plugin: {folder}: {type(error).__name__}: {error}", file=sys.stderr)
    if not runs:
        raise ValueError(f"{options.runs}: expected the folder of a finished run; name one")
    tables = lay_out(list(runs.values()))
    text = json.dumps({"tables": tables}, indent=2)
    if options.out is not None:
        write_text(options.out / "results.md", markdown(tables) + "\n")
        write_text(options.out / "results.json", text + "\n")
    measured = [t for t in tables if any(v is not None for r in t["rows"] for v in r["measured"])]
    print(text if options.json else markdown(measured))
    return status
