"""What was measured of a checkpoint, by the ``results.json`` of this package's commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pirl_plugin.checkpoints.compare import compare
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.timm_trunk import TimmTensors, find_any_trunk
from pirl_plugin.checkpoints.training_run import run_config

if TYPE_CHECKING:
    from pirl_plugin.checkpoints.trunk import Trunk


class Measurement(NamedTuple):
    """A sentence for the model card, and the checkpoint that was measured."""

    checkpoint: Path
    sentence: str


def find_results(checkpoint: Path, trunk: Trunk | TimmTensors, given: list[Path]) -> list[str]:
    """One sentence for each measurement of a checkpoint.

    Args:
        checkpoint: ``results.json`` in its folder and in the folders in that one are taken where
            they name it; tables are not, which repeat what is in others, nor what cannot be read.
        trunk: its trunk.
        given: further JSON files, of ``pirl-plugin knn``, ``detection`` or ``results``. They may
            name another file with the same trunk.

    Raises:
        FileNotFoundError: a given file does not exist.
        ValueError: a given file is not JSON, holds no measurement, or one of another trunk.
    """
    folder = checkpoint.resolve().parent
    listed = {path.resolve() for path in given}
    measured = []
    for file in (folder / "results.json", *sorted(folder.glob("*/results.json"))):
        if file.is_file() and file.resolve() not in listed:
            near = _readable_measurements(file)
            measured += [m.sentence for m in near if m.checkpoint == checkpoint.resolve()]
    for file in given:
        measured += _of_trunk(file, checkpoint, trunk)
    return measured


def _readable_measurements(file: Path) -> list[Measurement]:
    """Those of a file that nobody named; none of one that is of something else, or damaged."""
    try:
        return _measurements(_read_json(file))
    except (OSError, TypeError, ValueError):
        return []


def _of_trunk(file: Path, checkpoint: Path, trunk: Trunk | TimmTensors) -> list[str]:
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file} of results")
    content = _read_json(file)
    try:
        found = [*_measurements(content), *_in_tables(content)]
    except (AttributeError, KeyError, TypeError, ValueError):
        found = []
    if not found:
        raise ValueError(
            f"{file} holds no measurement of a checkpoint: expected a results.json of pirl-plugin "
            f"knn, detection or, with its runs still in place, results; give one, or leave it out"
        )
    named = dict.fromkeys(measurement.checkpoint for measurement in found)
    mine = {path for path in named if _is_same(path, checkpoint, trunk)}
    if not mine:
        raise ValueError(
            f"{file} is of {', '.join(map(str, named))}: expected measurements of {checkpoint}, "
            f"which is exported; measure that, or export the other"
        )
    return [measurement.sentence for measurement in found if measurement.checkpoint in mine]


def _is_same(path: Path, checkpoint: Path, trunk: Trunk | TimmTensors) -> bool:
    """Whether a file is the checkpoint, or has the same trunk, as an export of it has."""
    if path == checkpoint.resolve():
        return True
    try:
        found = find_any_trunk(read_checkpoint(path), str(path))
    except (OSError, ValueError):
        return False
    return not compare(trunk.weights(), found.weights(), values=True)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    return content if isinstance(content, dict) else {}


def _measurements(results: dict[str, Any]) -> list[Measurement]:
    """What ``knn`` and ``detection`` write; nothing of any other file."""
    named = results.get("checkpoint", results.get("weights"))
    if not isinstance(named, str):
        return []
    top1, mean = results.get("knn_top1"), results.get("mean")
    if isinstance(top1, int | float):
        data = Path(str(results.get("data", ""))).name
        sentence = (
            f"kNN top-1 {top1:.2f} % (k = {results.get('k')}, "
            f"{results.get('train_images')} training and {results.get('test_images')} test images "
            f"of {results.get('classes')} classes{f', {data}' if data else ''})"
        )
    elif isinstance(mean, dict):
        figures = ", ".join(f"{key} {value:.1f}" for key, value in mean.items())
        sentence = f"{results.get('config')}: {figures} ({results.get('metric', '')})"
    else:
        return []
    return [Measurement(Path(named).resolve(), sentence)]


def _in_tables(content: dict[str, Any]) -> Iterator[Measurement]:
    """The figures of ``pirl-plugin results`` whose runs are all of one checkpoint."""
    for table in content.get("tables") or []:
        number = "" if table["number"] is None else f"Table {table['number']}, "
        for row in table["rows"]:
            for column, value, runs in zip(
                table["columns"], row["measured"], row["runs"], strict=True
            ):
                of = {_measured_by(Path(source["run"])) for source in runs}
                if value is not None and len(of) == 1 and (path := of.pop()) is not None:
                    several = f", mean of {len(runs)} runs" if len(runs) > 1 else ""
                    yield Measurement(
                        path, f"{column} {value:.1f} ({number}{table['title']}{several})"
                    )


def _measured_by(run: Path) -> Path | None:
    """The checkpoint that a run measured; None where its folder does not say."""
    results = run / "results.json"
    if results.is_file():
        content = _read_json(results)
        named = content.get("checkpoint", content.get("weights"))
    else:
        config = run_config(run / "checkpoint.torch") or {}
        named = config.get("MODEL", {}).get("WEIGHTS_INIT", {}).get("PARAMS_FILE")
    return Path(named).resolve() if isinstance(named, str) and named else None
