"""Rows for tables of finished runs, and a detection run to fill them."""

import json
from pathlib import Path

from pirl_plugin.system.files import sha256_of
from pirl_plugin.vissl.resume.record import read_origin


def row(tables, number, method):
    (table,) = [table for table in tables if table["number"] == number]
    (found,) = [row for row in table["rows"] if row["method"] == method]
    return dict(
        zip(table["columns"], zip(found["published"], found["measured"], strict=True), strict=True)
    )


def paper_rows(tables):
    """Return (table, row) for all published rows with a measurement."""
    return [
        (table["number"], row["method"])
        for table in tables
        for row in table["rows"]
        if not row["differs"] and any(v is not None for v in row["measured"])
        and any(v is not None for v in row["published"])
    ]  # fmt: skip


def detected(folder, config="voc0712_pirl", weights="", options=(), **more):
    folder.mkdir(parents=True, exist_ok=True)
    content = {"config": config, "weights": str(weights), "options": list(options), "num_gpus": 8}
    content |= {"requested": 5, "finished": 5}
    if Path(weights).is_file():
        content["weights_sha256"] = sha256_of(Path(weights))
        content["origin"] = read_origin(Path(weights))
    content["mean"] = {"AP": 50.0, "AP50": 70.0, "AP75": 60.0}
    (folder / "results.json").write_text(json.dumps(content | more))
    return folder
