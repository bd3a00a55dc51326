"""``pirl-plugin finetune``: overrides, exports, and a complete run."""

import os
import shutil
from types import SimpleNamespace

import pytest
import torch
import torchvision

from pirl_plugin.checkpoints.classifier import read_classifier
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.cli import run
from pirl_plugin.evaluation.finished_runs import final_accuracy
from pirl_plugin.evaluation.request import Request
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.labeled import open_labeled
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.vissl.adapters.dataset import open_datasets
from pirl_plugin.vissl.finetune import (
    _parse,
    _select_gpu,
    length_overrides,
    network_overrides,
    run_overrides,
)
from pirl_plugin.vissl.resume.record import write_run_config
from pirl_plugin.vissl.run.finetune_report import drawn_images, save_classifier
from pirl_plugin.vissl.sections import RECORD
from tests.helpers.configs import compose
from tests.helpers.host_tools import write_checkpoint, write_classes
from tests.helpers.programs import run_python

STATISTICS = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}


def finished_run(folder, trunk):
    """Write the final checkpoint after fine-tuning to three classes on 48-px images."""
    width = trunk(torch.zeros(1, 3, 48, 48)).shape[1]
    classifier = torch.nn.Linear(width, 3)
    file = folder / "model_final_checkpoint_phase1.torch"
    trunk.network_config = trunk.network_config.with_values("test", size=48, **STATISTICS)
    save_trunk(trunk, file)
    content = torch.load(file, weights_only=True)
    heads = {f"0.clf.0.{name}": tensor for name, tensor in classifier.state_dict().items()}
    content["classy_state_dict"]["base_model"]["model"]["heads"] = heads
    torch.save(content, file)
    return classifier


def expected_outputs(trunk, classifier, images):
    with torch.no_grad():
        return classifier(trunk.eval()(images))


@pytest.mark.parametrize("depth", [18, 10])
def test_resnet_classifier__loads_as_printed_by_export(depth, tmp_path, capsys):
    trunk = WideResNet(depth, 1 if depth == 18 else 0.25).eval()
    classifier = finished_run(tmp_path, trunk)
    file = tmp_path / "classifier.torch"
    save_classifier(tmp_path, ["ant", "b\nee", "cat"])
    assert str(file) in capsys.readouterr().out
    words = ["--checkpoint", str(file), "--to", "torchvision", "--out", str(tmp_path / "out.pth")]
    assert run(["export", *words]) == 0
    text = capsys.readouterr().out
    assert "classes: ant, b\\nee, cat\n" in text
    import pirl_plugin

    scope = {"torch": torch, "torchvision": torchvision, "pirl_plugin": pirl_plugin}
    exec(text.partition("\n\n")[2], scope)
    images = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        outputs = scope["model"].eval()(images)
    assert torch.equal(outputs, expected_outputs(trunk, classifier, images))
    assert "input: 48 px (file), mean 0.1 0.2 0.3 (file), std 0.5 0.6 0.7 (file)\n" in text
    # For embed.
    written = read_classifier(file)
    assert (written.classes, written.layer) == (["ant", "b\\nee", "cat"], "last")
    with torch.no_grad():
        index, probability = written.predict(load_trunk(file)(images))
    expected = expected_outputs(trunk, classifier, images).softmax(dim=1).max(dim=1)
    assert index.tolist() == expected.indices.tolist()
    torch.testing.assert_close(probability, expected.values)


@pytest.mark.parametrize("balanced", [True, False])
def test_frozen_classifier__uses_images_drawn_by_the_run(balanced, tmp_path):
    data = write_classes(tmp_path / "data", {"train": 20, "val": 4}, separable=True)
    shutil.copy(data / "train" / "class0" / "0.png", data / "train")  # unlabeled
    overrides = [
        *("config=benchmark/pirl/finetune", "config.DATA.TRAIN.DATA_LIMIT=6"),
        *(f"config.DATA.{split.upper()}.DATA_PATHS=[{data / folder}]" for split, folder in
          (("train", "train"), ("test", "val"))),
        f"config.DATA.TRAIN.DATA_LIMIT_SAMPLING.IS_BALANCED={balanced}",
        "config.DATA.TRAIN.DATA_LIMIT_SAMPLING.SEED=3",
    ]  # fmt: skip
    config = compose(*overrides)
    run = open_datasets(config, ["TRAIN"])["train"]
    run[0]  # draws
    write_run_config(config[RECORD].config, tmp_path)
    labels = drawn_images(open_labeled(data), tmp_path).train_labels
    assert (labels != NO_CLASS).nonzero()[0].tolist() == sorted(run.image_and_label_subset)


def test_length__is_given_in_steps_for_few_images():
    epochs = "config.OPTIMIZER.num_epochs"
    for num_images, expected in ((10, 1000), (320, 100), (1067, 31), (5000, 30)):
        assert length_overrides(num_images)[0] == f"{epochs}={expected}"


@pytest.mark.parametrize("network", ["resnet", "timm"])
def test_overrides__compose_to_same_network(network):
    if network == "timm":
        trunk = TimmTrunk("test_vit", {"img_size": 48})
    else:
        trunk = WideResNet(10, 0.25, small_stem=True)
    config = compose(*network_overrides(trunk), "config.MODEL.HEAD.NUM_CLASSES=7")
    model = config.MODEL
    width = 64 if network == "timm" else 128
    assert model.HEAD.PARAMS == [["mlp", {"dims": [width, 7]}]]
    if network == "timm":
        options = {"dynamic_img_size": True, "img_size": 48}
        assert model.TRUNK.PIRL_TIMM == {"NAME": "test_vit", "OPTIONS": options}
    else:
        section = {"DEPTH": 10, "WIDTH_MULTIPLIER": 0.25, "SMALL_STEM": True}
        assert model.TRUNK.PIRL_RESNET == section
    assert not model.FEATURE_EVAL_SETTINGS.FREEZE_TRUNK_ONLY


@pytest.mark.slow
def test_finetune__separates_classes_in_one_command(tmp_path):
    path = write_checkpoint(tmp_path / "10.torch", DEPTH=10, WIDTH_MULTIPLIER=0.25)
    data = write_classes(tmp_path / "data", {"train": 64, "val": 16}, separable=True)
    words = ["--checkpoint", str(path), "--data", str(data), "--out", str(tmp_path / "out")]
    words += ["--size", "32", "config.OPTIMIZER.num_epochs=6"]
    words += ["config.DATA.TRAIN.DATA_LIMIT=32"]
    words += ["--report", str(tmp_path / "page.html")]
    result = run_python("-m", "pirl_plugin", "finetune", *words)
    assert final_accuracy(tmp_path / "out") == {"0": 100.0}
    assert "training  32 images" in result.stdout
    assert (tmp_path / "out" / "classifier.torch").is_file()
    page = (tmp_path / "page.html").read_text()
    assert "fine-tuned" in page
    assert "100.0 ± " in page


@pytest.mark.parametrize(
    ("name", "visible", "chosen"),
    [("cuda", None, None), ("cuda:1", None, "1"), ("cuda:1", "5,7", "7"), ("cuda:2", "5,7", "")],
)
def test_device__is_the_only_visible_gpu(name, visible, chosen, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    options = SimpleNamespace(device=name)
    _select_gpu(options)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == chosen
    assert options.device == "cuda"


def test_overrides__take_batch_workers_and_device(tmp_path):
    write_classes(tmp_path, {"train": 2, "val": 2}, separable=True)
    words = ["--checkpoint", str(tmp_path / "train/class0/0.png"), "--data", str(tmp_path)]
    words += ["--pattern", r"(?P<label>[^/]+)/.*"]
    options = _parse([*words, "--batch", "5", "--workers", "0", "--device", "cpu"])
    request = Request.of_options(options)
    trunk = WideResNet(10, 0.25)
    overrides = run_overrides(request, options.out, [], trunk, open_labeled(tmp_path))
    assert "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=5" in overrides
    assert "config.DATA.TRAIN.PATTERN='(?P<label>[^/]+)/.*'" in overrides
    assert "config.DATA.NUM_DATALOADER_WORKERS=0" in overrides
    assert "+config/pirl/machines=cpu" in overrides
