"""The benchmark of start-up, on sizes of seconds."""

import json

from pirl_plugin.benchmark.command import main


def test_startup__writes_a_row_for_each_part(tmp_path):
    file = tmp_path / "rows.json"
    sizes = ["--rows", "2000", "--model-mb", "2", "--rounds", "1", "--workers", "0"]
    main(["startup", "--json", str(file), *sizes])
    rows = {row["what"]: row for row in json.loads(file.read_text())["rows"]}
    assert list(rows) == [
        "python, import hook off",
        "python, import hook on",
        "import pirl_plugin",
        "import vissl.engines",
        "loss of 2,000 rows",
        "checkpoint of 2 MB (model)",
        "checkpoint of 3 MB (model and bank)",
        "saving a checkpoint of 3 MB",
    ]
    assert all(row["seconds_min"] > 0 for row in rows.values())
    assert rows["checkpoint of 3 MB (model and bank)"]["speedup_over_vissl"] > 1
    assert rows["import vissl.engines"]["speedup_over_vissl"] is None  # nothing to compare with
