"""The folder for timm gives the trunk's features to the bit, and says how it was trained."""

import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from pirl_plugin.checkpoints.load import load_trunk, save_trunk
from pirl_plugin.checkpoints.vissl_layout import vissl_checkpoint
from pirl_plugin.export import export_checkpoint
from pirl_plugin.models.timm_trunk import TimmTrunk
from tests.helpers.configs import compose
from tests.helpers.export_files import same, small_trunk, weights

timm = pytest.importorskip("timm", reason="timm is not installed")

NETWORKS = {
    "resnet10t": {},
    "convnext_atto": {"depths": [1, 1, 1, 1], "dims": [8, 16, 24, 32]},
    "vit_tiny_patch16_224": {
        "img_size": 32,
        "patch_size": 8,
        "depth": 2,
        "embed_dim": 48,
        "num_heads": 2,
    },
}


def images(size=64):
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def features_of(folder, size=64):
    model = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=0)
    return model.eval()(images(size))


@torch.no_grad()
def features_of_checkpoint(path, size=64):
    return load_trunk(path)(images(size), ["flatten"])[0]


@pytest.mark.parametrize("depth", [10, 18, 34, 50])
def test_timm__gives_the_features_of_a_resnet_to_the_bit(depth, tmp_path):
    source = tmp_path / "in.torch"
    torch.save(vissl_checkpoint(small_trunk(depth, width=1)), source)
    found = export_checkpoint(source, tmp_path / "out", "timm")
    assert found.depth == depth
    assert torch.equal(features_of(tmp_path / "out"), features_of_checkpoint(source))
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("name", NETWORKS)
def test_timm__gives_the_features_of_its_own_networks_to_the_bit(name, tmp_path):
    torch.manual_seed(0)
    source = tmp_path / "in.torch"
    save_trunk(TimmTrunk(name, NETWORKS[name]), source)
    export_checkpoint(source, tmp_path / "out", "timm")
    for size in (32, 64):
        expected = features_of_checkpoint(source, size)
        assert torch.equal(features_of(tmp_path / "out", size), expected)


def test_timm__takes_weights_without_counters(tmp_path):
    trunk = small_trunk(18, width=1)
    torch.save(weights(trunk), tmp_path / "in.torch")
    export_checkpoint(tmp_path / "in.torch", tmp_path / "out", "timm")
    expected = features_of_checkpoint(tmp_path / "in.torch")
    assert torch.equal(features_of(tmp_path / "out"), expected)


@pytest.mark.parametrize(
    ("section", "title"),
    [
        ({"depth": 50, "width": 2}, "ResNet-50 of width 2"),  # PIRL-c2x
        ({"depth": 10, "width": 0.5}, r"ResNet-10 of width 0\.5"),
        ({"depth": 18, "width": 1, "SMALL_STEM": True}, "ResNet-18, 3×3 stem"),
    ],
)
def test_timm__refuses_by_name_what_timm_does_not_have(section, title, tmp_path):
    torch.save(vissl_checkpoint(small_trunk(**section)), tmp_path / "in.torch")
    with pytest.raises(ValueError, match=f"timm has no {title}"):
        export_checkpoint(tmp_path / "in.torch", tmp_path / "out", "timm")
    assert not (tmp_path / "out").exists()


def test_wide_resnet50_2__is_not_c2x():
    """Its blocks are twice as wide inside; c2x is twice as wide everywhere, stem included."""
    stem = timm.create_model("wide_resnet50_2", num_classes=0).conv1.weight
    assert stem.shape[0] == 64


def write_run(run, *overrides):
    """A run's folder: checkpoint and configuration."""
    run.mkdir()
    torch.save(vissl_checkpoint(small_trunk(18, width=1)), run / "checkpoint.torch")
    plain = json.loads(json.dumps(compose(*overrides), default=str))
    (run / "train_config.yaml").write_text(yaml.safe_dump(plain))
    return run


@pytest.fixture
def finished_run(tmp_path):
    """A run's folder with a measurement of kNN."""
    overrides = ("config=pretrain/pirl/quick_jigsaw", "config.OPTIMIZER.num_epochs=7")
    run = write_run(tmp_path / "run", *overrides, "config.DATA.STD=[0.3,0.3,0.25]")
    (run / "knn").mkdir()
    knn = {"knn_top1": 41.5, "k": 20, "classes": 10, "train_images": 5000, "test_images": 1000}
    named = {"checkpoint": str(run / "checkpoint.torch"), "data": "/home/me/imagenette"}
    (run / "knn" / "results.json").write_text(json.dumps(knn | named))
    (run / "other").mkdir()
    other = {"knn_top1": 98.7, "checkpoint": str(tmp_path / "elsewhere.torch")}
    (run / "other" / "results.json").write_text(json.dumps(other))
    return run


def test_model_card__says_how_it_was_trained_measured_and_loaded(finished_run, tmp_path):
    mine = tmp_path / "detection.json"
    measured = {"config": "voc07_pirl", "metric": "11-point AP", "mean": {"AP": 48.71}}
    named = {"weights": str(finished_run / "checkpoint.torch")}
    mine.write_text(json.dumps(measured | named))
    out = tmp_path / "out"
    export_checkpoint(finished_run / "checkpoint.torch", out, "timm", results=[mine])
    card = (out / "README.md").read_text()
    header = yaml.safe_load(card.split("---")[1])
    assert header["library_name"] == "timm"
    assert "self-supervised" in header["tags"]
    assert (
        "Image features, learnt without labels: the trunk of a network pre-trained with PIRL"
        in card
    )
    assert "mean (0.485, 0.456, 0.406) and standard deviation\n(0.3, 0.3, 0.25)" in card
    assert "| Task | PIRLJigsaw |" in card
    assert "| Loss | pirl_loss, estimator info_nce |" in card
    assert "| Epochs | 7 |" in card
    assert "kNN top-1 41.50 % (k = 20, 5000 training and 1000 test images of 10 classes" in card
    assert "- voc07_pirl: AP 48.7 (11-point AP)" in card
    assert "98.7" not in card
    assert "/home/me" not in card
    assert f'folder = "local-dir:{out}"\nmodel = timm.create_model(folder, pretrained=True' in card
    assert "MIT licence" in card
    config = json.loads((out / "config.json").read_text())
    assert config["pretrained_cfg"]["input_size"] == [3, 64, 64]
    assert config["pretrained_cfg"]["mean"] == [0.485, 0.456, 0.406]
    assert config["pretrained_cfg"]["std"] == [0.3, 0.3, 0.25]


def test_model_card__of_a_fine_tuned_network_claims_no_learning_without_labels(tmp_path):
    name = "config=benchmark/pirl/semi_supervised_imagenet1k_1percent"
    run = write_run(tmp_path / "run", name)
    export_checkpoint(run / "checkpoint.torch", tmp_path / "out", "timm")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Image features: the trunk of a network, without" in card
    assert "self-supervised" not in card
    assert "| Learning rate | 0.01 → 0.001 → 0.0001, multistep |" in card


def test_model_card__names_the_weights_that_a_run_started_from(tmp_path):
    """Supervised ones made a trunk that had "learnt without labels"."""
    run = write_run(tmp_path / "run", "config=pretrain/pirl/quick_jigsaw")
    file = run / "train_config.yaml"
    config = yaml.safe_load(file.read_text())
    config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"] = "/else/supervised.pth"
    file.write_text(yaml.safe_dump(config))
    export_checkpoint(run / "checkpoint.torch", tmp_path / "out", "timm")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| Initial weights | supervised.pth |" in card
    assert "without labels" not in card
    assert "self-supervised" not in card


def test_model_card__says_what_is_not_known(tmp_path):
    torch.save(vissl_checkpoint(small_trunk(18, width=1)), tmp_path / "in.torch")
    export_checkpoint(tmp_path / "in.torch", tmp_path / "out", "timm")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "how it was trained is not recorded" in card
    assert "None are recorded" in card
    assert "without labels" not in card
    assert "PIRL" not in card
    assert "mean (0.485, 0.456, 0.406)" in card


def test_timm__leaves_other_folders_alone_and_replaces_its_own(tmp_path):
    torch.save(vissl_checkpoint(small_trunk(18, width=1)), tmp_path / "in.torch")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"full: expected a new folder"):
        export_checkpoint(tmp_path / "in.torch", tmp_path / "full", "timm")
    with pytest.raises(ValueError, match=r"expected another file than the checkpoint"):
        export_checkpoint(tmp_path / "in.torch", tmp_path / "in.torch", "timm")
    for seed in (0, 1):
        torch.save(vissl_checkpoint(small_trunk(18, width=1, seed=seed)), tmp_path / "in.torch")
        export_checkpoint(tmp_path / "in.torch", tmp_path / "out", "timm")
    saved = load_file(tmp_path / "out" / "model.safetensors")
    expected = {n.removeprefix("_feature_blocks."): t for n, t in small_trunk(18, 1, 1).items()}
    assert same(saved, expected)


def test_guide__has_the_lines_that_load_the_weights(tmp_path, monkeypatch):
    source = tmp_path / "in.torch"
    torch.save(vissl_checkpoint(small_trunk(18, width=1)), source)
    export_checkpoint(source, tmp_path / "DIR", "timm")
    guide = Path(__file__).parents[2] / "docs" / "guides" / "export.md"
    (lines,) = (
        b for b in re.findall(r"```python\n(.*?)```", guide.read_text(), re.S) if "local-dir" in b
    )
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(lines, names)
    with torch.no_grad():
        assert torch.equal(names["model"].eval()(images()), features_of_checkpoint(source))
