"""Every row in the paper's tables that has a config, from made-up runs, in one command."""

import json

import pytest
import results as results_script
from paper_rows import BENCHMARKS
from published import DETECTION_ROWS, published_tables

from tests.helpers.finished_runs import WIDE, measured, pretrained
from tests.helpers.results_rows import detected

pytestmark = pytest.mark.walk
# Networks of other authors, of no config of ours.
OTHERS = {
    "Colorization", "MoCo", "MoCo (BatchNorm fine-tuned)", "BigBiGAN", "AET", "DeepCluster",
    "Rot. (Kolesnikov et al.)", "LA (10 crops)", "CMC", "CPC", "CPC-Big", "CPC-Huge", "CPC-Largest",
    "BigBiGAN-Big", "AMDIM", "VAT + Ent Min.", "S4L Exemplar", "S4L Rotation", "LA",
    "Colorization (R-152)", "Multi-task (R-101)", "DeepCluster (YFCC-1M)", "Jigsaw (YFCC-100M)",
    "DeeperCluster (YFCC-100M)", "Places205 Supervised", "Kolesnikov et al.", "PIRL-ens",
}  # fmt: skip
COLUMNS = {column for column, _ in BENCHMARKS.values()}


def weights(folder, row, *overrides):
    """What a benchmark of a row measures."""
    if row == "Random":
        return ""
    if row == "Supervised":
        return folder / "resnet50-19c8e357.pth"
    return pretrained(folder / f"{row} pretrain", *overrides, row=row)


def made_up_runs(folder, *overrides):
    """A finished run for each published figure of a row with a config."""
    runs = {}
    for table in published_tables():
        for row, figures in table["rows"].items():
            if row in OTHERS:
                continue
            for column, figure in zip(table["columns"], figures, strict=True):
                name = column.split()[0] if table["number"] == 7 else column
                out = folder / f"{table['number']} {row} {name}"
                if figure is None or out in runs:
                    continue
                if name in COLUMNS:
                    wide = (WIDE,) if row == "PIRL-c2x" else ()
                    runs[out] = measured(out, weights(folder, row, *overrides), *wide, column=name)
                elif column == "AP":
                    config = next(
                        config
                        for config, (number, rows) in DETECTION_ROWS.items()
                        if number == table["number"] and row in rows
                    )
                    runs[out] = detected(out, config, weights(folder, row, *overrides))
    return list(runs.values())


def results(runs, folder):
    assert results_script.main([*map(str, runs), "--out", str(folder)]) == 0
    assert (folder / "figure_2.png").stat().st_size > 10_000
    assert (folder / "figure_5.png").stat().st_size > 10_000
    return json.loads((folder / "results.json").read_text())["tables"]


def test_tables__are_filled_by_right_runs_and_only_by_them(tmp_path):
    runs = made_up_runs(tmp_path)
    tables = results(runs, tmp_path / "tables")
    for table in tables:
        for row in table["rows"]:
            assert not row["differs"], row
            detectors = [
                rows for number, rows in DETECTION_ROWS.values() if number == table["number"]
            ]
            without_config = bool(detectors) and row["method"] not in set().union(*detectors)
            if row["method"] in OTHERS or without_config:
                assert row["measured"] == [None] * len(table["columns"])
                continue
            for published, figure in zip(row["published"], row["measured"], strict=True):
                assert published is None or figure is not None, (table["number"], row)


def test_tables__are_filled_by_no_foreign_run(tmp_path):
    """The same runs after one change: the momentum of what was trained."""
    runs = made_up_runs(tmp_path, "config.OPTIMIZER.momentum=0.5")
    runs = [run for run in runs if "Random" not in run.name and "Supervised" not in run.name]
    for table in results(runs, tmp_path / "tables"):
        for row in table["rows"]:
            assert row["differs"] or set(row["measured"]) == {None}, (table["number"], row)
