"""The benchmark of the loss: what it writes, and that it measures what it says."""

import importlib.util
import json
import time

import pytest
import torch

from pirl_plugin.benchmark import loss
from pirl_plugin.benchmark.command import main
from pirl_plugin.benchmark.timing import peak_extra_bytes


def test_loss__refuses_a_batch_of_more_images_than_there_are():
    """It ended in a traceback."""
    with pytest.raises(SystemExit, match=r"--batch 8: expected at most the 2 images of --rows, ea"):
        main(["loss", "--device", "cpu", "--rows", "2", "--batch", "1", "8", "--negatives", "1"])


def test_loss__writes_a_row_for_each_case(tmp_path):
    file = tmp_path / "rows.json"
    sizes = ["--rows", "500", "--batch", "2", "4", "--negatives", "16", "--rounds", "2"]
    main(["loss", "--device", "cpu", "--json", str(file), *sizes])
    figures = json.loads(file.read_text())
    cases = {
        (row["estimator"], row["batch"], row["negatives"], row["placement"])
        for row in figures["rows"]
    }
    assert cases == {
        (estimator, batch, 16, placement)
        for estimator in ("nce", "nce_softmax", "info_nce")
        for batch in (2, 4)
        for placement in ("replicated", "sharded")
    }
    assert len(figures["rows"]) == len(cases)
    assert len(figures["vissl"]) == len(figures["shared_draw"]) == 6
    for row in figures["rows"]:
        assert row["device"] == "cpu"
        assert row["seconds_min"] > 0
        assert row["speedup_over_vissl"] > 0
    assert all(row["speedup_over_vissl"] == 1 for row in figures["vissl"])


def test_memory__is_the_peak_of_the_call():
    def hold(count):
        tensors = [torch.ones(25_000_000) for _ in range(count)]  # 100 MB each
        time.sleep(0.01)
        return tensors

    assert peak_extra_bytes(lambda: hold(1), "cpu") == pytest.approx(100e6, rel=0.2)
    assert peak_extra_bytes(lambda: hold(3), "cpu") == pytest.approx(300e6, rel=0.2)


def test_loss__is_measured_alone_where_vissl_is_not_installed(tmp_path, monkeypatch, capsys):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "vissl" else find_spec(name)
    )
    file = tmp_path / "rows.json"
    sizes = ["--rows", "500", "--batch", "2", "--negatives", "16", "--rounds", "1"]
    main(["loss", "--device", "cpu", "--json", str(file), *sizes])
    figures = json.loads(file.read_text())
    assert len(figures["rows"]) == 6
    assert figures["vissl"] == []
    assert all(row["speedup_over_vissl"] is None for row in figures["rows"])
    assert "VISSL's loss left out: VISSL is not installed" in capsys.readouterr().out


def test_loss__leaves_vissls_out_for_a_batch_of_one_image(capsys):
    """VISSL's loss squeezes the batch away, and ended in a bare AssertionError."""
    rows = loss._Bench(50, "float32", "cpu", 1).measure("nce", 1, 16)
    assert {row["loss"] for row in rows} == {"ours", "ours, one draw"}
    assert "left out at B = 1: it takes two images or more" in capsys.readouterr().out
