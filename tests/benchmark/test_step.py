"""The benchmark of a training step, on the CPU."""

import json

import pytest

from pirl_plugin.benchmark.command import main
from pirl_plugin.benchmark.timing import seconds_between


@pytest.mark.parametrize("command", ["loss", "step"])
def test_device__that_is_not_here_is_refused(command, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="cuda: expected a device that is here, which is cpu"):
        main([command, "--device", "cuda"])


def test_step__writes_a_row_for_each_precision_and_batch(image_folder, tmp_path, capsys):
    file = tmp_path / "rows.json"
    sizes = ["--depth", "18", "--images", "2", "--batch", "2", "3", "--negatives", "64"]
    more = ["--rows", "500", "--steps", "1", "--precision", "bfloat16", "--device", "cpu"]
    main(["step", "--data", str(image_folder / "train"), "--json", str(file), *sizes, *more])
    figures = json.loads(file.read_text())
    assert [(row["precision"], row["batch"]) for row in figures["rows"]] == [
        ("bfloat16", 2), ("bfloat16", 3),
    ]  # fmt: skip
    for row in figures["rows"]:
        shares = {k: v for k, v in row.items() if k.endswith("_share") and k != "plugin_share"}
        assert sum(shares.values()) == pytest.approx(1)
        ours = shares["normalise_share"] + shares["loss_share"] + shares["bank_share"]
        assert row["plugin_share"] == pytest.approx(ours)
        assert row["images_per_s"] == pytest.approx(1e3 * row["batch"] / row["ms_median"])
        assert row["workers_needed"] >= row["images_per_s"] / figures["input_images_per_s"]
        assert row["peak_gb"] is None
    assert "Input pipeline, one core" in capsys.readouterr().out


def test_seconds__are_those_of_each_part():
    times = iter([10.0, 10.5, 12.5])
    parts = seconds_between(lambda end_part: [end_part(), end_part()], "cpu", times.__next__)
    assert parts == [0.5, 2.0]
