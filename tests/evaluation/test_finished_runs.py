"""Results from a finished linear benchmark or its final checkpoint."""

from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.cli import run
from pirl_plugin.evaluation.finished_runs import final_accuracy
from pirl_plugin.evaluation.network_options import report_accuracies
from pirl_plugin.images.labeled import open_labeled
from pirl_plugin.models.resnet import ResNetTrunk
from pirl_plugin.vissl.linear import choose_benchmark
from tests.helpers.host_tools import write_checkpoint, write_classes
from tests.helpers.images import save_gray
from tests.helpers.sweeps import finish


@pytest.mark.slow
def test_linear__runs_narrow_network_in_one_command(tmp_path, capfd):
    path = write_checkpoint(tmp_path / "10.torch", DEPTH=10, WIDTH_MULTIPLIER=0.25)
    data = write_classes(tmp_path / "data", {"train": 64, "val": 16}, separable=True)
    for split in ("train", "val"):
        save_gray(data / split / "without_a_class.png")
        for folder in sorted((data / split).iterdir())[:2]:
            (folder / "unreadable.png").write_text("no image")
    words = ["--checkpoint", str(path), "--data", str(data), "--out", str(tmp_path / "out")]
    rate = "config.OPTIMIZER.param_schedulers.lr.start_value=1"
    words += ["--fit", "vissl", "--size", "32", rate, "config.OPTIMIZER.num_epochs=4"]
    words.append("config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=8")
    assert run(["linear", *words, "config.HOOKS.PIRL_RUN.max_unreadable=0.2"]) == 0
    printed = capfd.readouterr().out
    assert "training  66 images" in printed  # 67 minus one unlabeled
    assert "16 labeled test images" in printed  # 19 minus one unlabeled and two unreadable
    found = final_accuracy(tmp_path / "out")
    assert found == {"res5": 100.0}  # over readable, labeled images
    assert printed.endswith("Linear top-1 (%):\n  res5    100.00\n")


def test_choose_benchmark__picks_matching_overlay():
    def overlay(*arguments):
        with torch.device("meta"):
            return choose_benchmark(ResNetTrunk(*arguments))[:2]

    full = "config=benchmark/pirl/linear_imagenet1k"
    assert overlay(50) == [full, "+config/pirl/linear=resnet50"]
    assert overlay(50, 2) == [full, "+config/pirl/linear=resnet50_c2x"]
    assert overlay(18) == [full, "+config/pirl/linear=resnet18"]
    assert overlay(34)[0] == overlay(18, 0.5)[0] == "config=benchmark/pirl/quick_linear"
    assert overlay(18, 1, True)[0] == "config=benchmark/pirl/quick_linear"


def test_report__shows_every_layer_and_chance(tmp_path):
    data = write_classes(tmp_path, {"train": 4, "val": 6}, separable=True)
    (data / "val" / "class0" / "0.png").rename(
        data / "val" / "0.png"
    )  # unlabeled; leaves 2 and 3 images
    options = SimpleNamespace(report=tmp_path / "r.html", checkpoint=tmp_path, out=tmp_path / "out")
    accuracies = {"res4": 40.0, "res5": 100.0}
    report_accuracies(options, "Title", ResNetTrunk(10, 0.25), open_labeled(data), accuracies, 7, 5)
    page = options.report.read_text()
    assert "chance, 60.0 %" in page
    assert f"7 in {data / 'train'}" in page  # not the folder's 4: trained on a fraction
    # For 5 labeled images, as 4 and 7 of 9: 196 √(4/9 · 5/9 / 9) and 196 √(7/9 · 2/9 / 9)
    assert all(words in page for words in ("res4", "40.0 ± 32.5 %", "res5", "100.0 ± 27.2 %"))


def test_final_accuracy__is_from_the_last_epoch(tmp_path):
    with pytest.raises(ValueError, match="no test accuracy for the last epoch"):
        final_accuracy(tmp_path / "nowhere")
    finish(tmp_path, {"res4": 12.5, "res5": 37.5})
    assert final_accuracy(tmp_path) == {"res4": 12.5, "res5": 37.5}
    final = tmp_path / "model_final_checkpoint_phase1.torch"
    final.rename(
        tmp_path / "model_phase1.torch"
    )  # both epochs are tested, but the run is unfinished
    with pytest.raises(ValueError, match="no test accuracy for the last epoch"):
        final_accuracy(tmp_path)
    finish(tmp_path, {"res5": 37.5}, tested=False)
    with pytest.raises(ValueError, match="no test accuracy for the last epoch"):
        final_accuracy(tmp_path)


def test_final_accuracy__ignores_damaged_earlier_lines(tmp_path):
    """A full disk or a kill may truncate the line from an earlier epoch."""
    finish(tmp_path, {"res5": 37.5})
    metrics = tmp_path / "metrics.json"
    first, *others = metrics.read_text().splitlines()
    metrics.write_text("\n".join([first[:20], *others]))
    assert final_accuracy(tmp_path) == {"res5": 37.5}
