"""``pirl-plugin claims --report-only``: what finished runs say, without their images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.comparison import descriptions
from pirl_plugin.experiments.claims.outputs import locked, write_all
from pirl_plugin.experiments.claims.provenance import refuse_other_recipes
from pirl_plugin.experiments.claims.record import Record, read_claims
from pirl_plugin.experiments.claims.scales import scale_with
from pirl_plugin.experiments.claims.workspace import Workspace
from pirl_plugin.experiments.data import Data

if TYPE_CHECKING:
    import argparse


def report_claims(options: argparse.Namespace) -> None:
    """Write verdicts, tables and figures of finished runs. Needs none of their images.

    Args:
        options: as of the command, whose ``out`` and ``resume`` name them.

    Raises:
        SystemExit: there are none, their settings or recipes differ, or something was not written.
    """
    there = (options.out / "claims.json", options.resume)
    files = [file for file in there if file is not None and file.is_file()]
    if not files:
        raise SystemExit(
            f"pirl_plugin: --out = {options.out}: expected a claims.json to report on; name the "
            f"folder of a comparison, or a file with --resume"
        )
    setting = read_claims(files[0])["setting"]
    scale = scale_with(setting["scale"], setting.setdefault("recipe", "paper"))
    facts = setting["data"]
    setting.update(descriptions(scale))
    options.out.mkdir(parents=True, exist_ok=True)
    with locked(options.out):
        record = Record(options.out / "claims.json", setting)
        if options.resume is not None:
            record.take(options.resume)
        if len(files) > 1:
            data = Data(Path(), Path(), facts["train_images"], facts["classes"])
            workspace = Workspace(scale, data, options.out, setting["evaluated_every"], 1)
            refuse_other_recipes(record.rows, workspace, files)
        if failed := write_all(record):
            raise SystemExit("pirl_plugin: " + "\n".join(failed))
