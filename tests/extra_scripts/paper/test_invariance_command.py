"""Run the script on checkpoints with and without heads."""

import itertools
import json

import invariance
import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from pretext_model import load_pretext_model
from run_config import run_config

from pirl_plugin.models.head import PIRLHead
from pirl_plugin.models.resnet import WideResNet

SMALL = {"image_size": 32, "patches_crop_size": 48, "patch_size": 16}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for i in range(6):
        coarse = Image.fromarray(rng.integers(0, 256, (3, 3, 3), dtype=np.uint8))
        coarse.resize((64, 64), Image.Resampling.BICUBIC).save(folder / f"{i}.png")
    return folder


def checkpoint(folder, transform="PIRLJigsaw", heads=True, seed=0, **parameters):
    """Write a checkpoint in VISSL's format, with its run's configuration beside it."""
    torch.manual_seed(seed)
    trunk = WideResNet(10, 0.25)
    patches = 9 if transform == "PIRLJigsaw" else 1
    state = {}
    for number, count in enumerate((patches, 1) if heads else ()):
        head = PIRLHead(128, 8, count)
        state |= {f"{number}.{name}": tensor for name, tensor in head.state_dict().items()}
    model = {"trunk": trunk.state_dict(), "heads": state}
    content = {"type": "consolidated", "classy_state_dict": {"base_model": {"model": model}}}
    folder.mkdir()
    torch.save(content, folder / "checkpoint.torch")
    entry = {"name": transform, "photometric": {}, **parameters}
    (folder / "train_config.yaml").write_text(
        yaml.safe_dump({"DATA": {"TRAIN": {"TRANSFORMS": [entry]}}})
    )
    return folder / "checkpoint.torch"


def test_invariance__compares_models_and_writes_results(images, tmp_path, capsys):
    pirl = checkpoint(tmp_path / "pirl", **SMALL)
    jigsaw = checkpoint(
        tmp_path / "jigsaw", "PredictJigsaw", heads=False, num_permutations=100,
        patches_crop_size=48, patch_size=16,
    )  # fmt: skip
    out = tmp_path / "out"
    arguments = ["--data", str(images), "--out", str(out), "--transforms", "3"]
    invariance.main(["--checkpoint", str(pirl), str(jigsaw), *arguments])
    results = json.loads((out / "invariance.json").read_text())
    assert (results["images"], results["transforms"]) == (6, 3)
    first, second = results["models"]
    assert (first["name"], second["name"]) == ("pirl", "jigsaw")
    assert first["representation"].startswith("f(v_I) and g(v_It)")
    assert "no pair of heads" in second["representation"]
    for model in (first, second):
        for kind, pairs in itertools.product(("heads", "own_statistics"), ("same", "different")):
            found = model[kind][pairs]
            assert 0 < found["mean"] < 2
            assert sum(found["density"]) * 2 / 50 == pytest.approx(1)
    assert (first["image_size"], second["image_size"]) == (32, 32)
    assert "<svg" in (out / "invariance.svg").read_text()
    assert np.asarray(Image.open(out / "invariance.png").convert("L")).std() > 0
    printed = capsys.readouterr().out
    assert "pirl, separate BatchNorm statistics for each kind of input: same image" in printed

    # the classifier has no image view, so it gets images at the other model's size
    views = load_pretext_model(jigsaw, other=run_config(pirl)).views
    assert (views.image_size, views.patch_size) == (32, 16)
    assert len(views.permutations.orders) == 100

    # or, without the other model, at the requested size
    invariance.main(["--checkpoint", str(jigsaw), *arguments, "--size", "32"])
    (alone,) = json.loads((out / "invariance.json").read_text())["models"]
    assert {**alone, "name": "jigsaw"} == second


def test_load_pretext_model__uses_patches_from_another_run(tmp_path):
    """A 64-px NPID used to get 64-px patches from a 255-px crop."""
    npid = checkpoint(tmp_path / "npid", "PIRLImage", image_size=32)
    pirl = checkpoint(tmp_path / "pirl", **SMALL)
    views = load_pretext_model(npid, other=run_config(pirl)).views
    assert (views.image_size, views.patches_crop_size, views.patch_size) == (32, 48, 16)
    paper = checkpoint(tmp_path / "paper", "PIRLImage", image_size=224)
    assert load_pretext_model(paper).views.patch_size == 64


def test_invariance__own_statistics_ignore_running_statistics(images, tmp_path):
    path = checkpoint(tmp_path / "trained", **SMALL)
    other = checkpoint(tmp_path / "drifted", **SMALL)
    content = torch.load(other, weights_only=True)
    for name, tensor in content["classy_state_dict"]["base_model"]["model"]["trunk"].items():
        if name.endswith("running_mean"):
            tensor += 0.5
    torch.save(content, other)
    arguments = ["--data", str(images), "--out", str(tmp_path / "out"), "--transforms", "2"]
    invariance.main(["--checkpoint", str(path), str(other), *arguments])
    trained, drifted = json.loads((tmp_path / "out" / "invariance.json").read_text())["models"]
    same = [model["own_statistics"]["same"]["mean"] for model in (trained, drifted)]
    assert same[0] == pytest.approx(same[1], abs=1e-6)
    assert abs(trained["heads"]["same"]["mean"] - drifted["heads"]["same"]["mean"]) > 1e-3


def test_load_pretext_model__loads_rotation(tmp_path):
    model = load_pretext_model(checkpoint(tmp_path / "rotation", "PIRLRotation", image_size=32))
    image, versions = model.views_of(torch.zeros(3, 50, 40, dtype=torch.uint8), 0, 2, 0)
    assert (image.shape, versions.shape) == ((3, 32, 32), (2, 1, 3, 32, 32))
    assert model.embed_images(image[None]).shape == (1, 8)
    assert model.embed_transformed(versions).shape == (2, 8)
    assert model.g is not None


def test_load_pretext_model__applies_g_across_patches(tmp_path):
    model = load_pretext_model(checkpoint(tmp_path / "pirl", **SMALL))
    patches = torch.randint(0, 256, (2, 9, 3, 16, 16), dtype=torch.uint8)
    both = model.embed_transformed(patches)
    one = model.embed_transformed(patches[1:])
    torch.testing.assert_close(both[1:], one)
    assert (model.g.num_patches, model.f.num_patches) == (9, 1)


def test_invariance__defaults_to_the_papers_views(tmp_path):
    path = checkpoint(tmp_path / "pirl")
    (tmp_path / "pirl" / "train_config.yaml").unlink()
    views = load_pretext_model(path).views
    assert (views.image_size, views.patch_size) == (224, 64)
    other = run_config(checkpoint(tmp_path / "other", **SMALL))
    assert load_pretext_model(path, other=other).views.patch_size == 16


def test_invariance__checks_all_checkpoints_first(images, tmp_path, capsys):
    path = checkpoint(tmp_path / "pirl", **SMALL)
    damaged = tmp_path / "damaged.torch"
    damaged.write_bytes(path.read_bytes()[:1000])
    words = ["--data", str(images), "--out", str(tmp_path / "out"), "--checkpoint"]
    with pytest.raises(SystemExit):
        invariance.main([*words, str(path), str(tmp_path / "gone.torch")])
    assert "gone.torch does not exist" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"damaged\.torch is damaged or not a checkpoint"):
        invariance.main([*words, str(path), str(damaged)])
