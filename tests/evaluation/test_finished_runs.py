"""Results from a finished linear benchmark or its final checkpoint."""

from types import SimpleNamespace

import pytest

from pirl_plugin.evaluation.finished_runs import final_accuracy
from pirl_plugin.evaluation.page import Accuracy, Report
from pirl_plugin.evaluation.pictures import choose_display, page_images
from pirl_plugin.images.labeled import open_labeled
from pirl_plugin.images.reading import Reading
from pirl_plugin.models.network_config import NetworkConfig
from tests.helpers.host_tools import write_classes
from tests.helpers.sweeps import finish


def test_report__shows_every_layer_and_chance(tmp_path):
    data = write_classes(tmp_path, {"train": 4, "val": 6}, separable=True)
    (data / "val" / "class0" / "0.png").rename(
        data / "val" / "0.png"
    )  # unlabeled; leaves 2 and 3 images
    accuracies = [Accuracy("res4", 40.0, 5), Accuracy("res5", 100.0, 5)]
    images = open_labeled(data)
    display = choose_display(images.test, Reading())
    report = Report(tmp_path / "r.html", "weights", NetworkConfig(), display)
    report.write(
        title="Title",
        images=page_images(images.test, range(5), display),
        measured=SimpleNamespace(images=images, num_train=7, chance_top1=40.0),
        accuracy=accuracies[0],
        charts={"": accuracies},
    )
    page = report.path.read_text()
    assert "chance, 40.0 %" in page
    assert "40.0 ± 32.5 % of 5 test images are classified correctly." in page
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
