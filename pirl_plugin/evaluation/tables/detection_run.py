"""Whether a finished detection run is the one that the paper's tables report."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import yaml

from pirl_plugin.evaluation.tables.compare_settings import (
    ABSENT,
    Differences,
    differences,
    flatten,
    same,
)
from pirl_plugin.evaluation.tables.paper_settings.detection import CONFIGS, DEFAULTS, FREE, ROWS
from pirl_plugin.settings import config_root

_PER_TRIAL = {  # of a trial's result → the key it comes from, after scaling to the GPUs
    "iterations": "SOLVER.MAX_ITER",
    "base_lr": "SOLVER.BASE_LR",
    "images_per_step": "SOLVER.IMS_PER_BATCH",
}


def detection_differences(path: Path, results: dict[str, Any]) -> Differences:
    """In what a run is not that of the configuration which it names.

    The composed values are those of the trials' own ``trial.yaml``, or, where there is none, of the
    configuration's file. An option over them counts too, and so do batch, rate and iterations,
    which Detectron2 scales to the number of GPUs.

    Args:
        path: the run's folder.
        results: its ``results.json``.
    """
    name = Path(results["config"]).stem
    fixed = flatten(CONFIGS[name])
    differ: Differences = {}
    composed = [_loaded(file) for file in sorted(path.glob("trial_*/trial.yaml"))]
    for trial in composed:  # whole, with Detectron2's defaults: only what is fixed is compared
        kept = {key: value for key, value in trial.items() if key in fixed}
        differ |= differences(kept, fixed, FREE)
    if not composed:
        differ |= _file_differences(results["config"], fixed)
    options = results.get("options") or []
    given = dict(zip(options[::2], map(_literal, options[1::2]), strict=False))
    differ |= differences({**fixed, **given}, fixed, FREE)
    for trial in results.get("trials") or []:
        for key, setting in _PER_TRIAL.items():
            if key in trial and not same(trial[key], fixed[setting]):
                differ[key] = (trial[key], fixed[setting])
    return differ


def _file_differences(config: str, fixed: dict[str, object]) -> Differences:
    ours = config_root() / "detection" / f"{config}.yaml"
    file = ours if ours.is_file() else Path(config)
    if not file.is_file():
        return {"config": (f"{config}, which is not here", f"{Path(config).stem} of this package")}
    return differences({**DEFAULTS, **_composed(file)}, fixed, FREE)


def _composed(file: Path) -> dict[str, object]:
    """Dotted key → value of a file and of those it builds on."""
    values = yaml.safe_load(file.read_text()) or {}
    base = values.pop("_BASE_", None)
    below = _composed(file.parent / base) if base else {}
    return below | {key: _literal(value) for key, value in flatten(values).items()}


def _loaded(file: Path) -> dict[str, object]:
    return {
        key: _literal(value) for key, value in flatten(yaml.safe_load(file.read_text())).items()
    }


def _literal(value: object) -> object:
    """Detectron2 reads ``"(480, 512)"`` and ``"1e-7"`` as the values they spell."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return value
    return list(value) if isinstance(value, tuple) else value


def allowed_rows(config: str) -> tuple[int, tuple[str, ...]]:
    """Table of a configuration, and the rows whose schedule it is.

    Raises:
        ValueError: it is of no table.
    """
    name = Path(config).stem
    if name not in ROWS:
        raise ValueError(
            f"config = {config}: expected one of {', '.join(ROWS)}; no table of the paper has it"
        )
    return ROWS[name]


def schedule_differences(config: str, row: str) -> Differences:
    """Empty where the paper fine-tunes the row by this configuration."""
    _, rows = allowed_rows(config)
    if row in rows:
        return {}
    table = ROWS[Path(config).stem][0]
    theirs = [name for name, (number, known) in ROWS.items() if number == table and row in known]
    return {"config": (Path(config).stem, theirs[0] if theirs else ABSENT)}
