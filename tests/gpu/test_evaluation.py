"""Export, kNN and invariance on a GPU give what they give on the CPU."""

import json

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from pirl_plugin import PIRLHead, export_checkpoint, knn_accuracy
from pirl_plugin.cli import run

VIEWS = {"name": "PIRLJigsaw", "image_size": 32, "patches_crop_size": 48, "patch_size": 16}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """``{train,val}/CLASS/*.png``, 3 classes of smooth random images."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 4)):
        for label in range(3):
            folder = root / split / f"class{label}"
            folder.mkdir(parents=True)
            for number in range(count):
                coarse = rng.integers(0, 160, (3, 3, 3), dtype=np.uint8)
                coarse[:, :, label] += 90
                image = Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC)
                image.save(folder / f"{number}.png")
    return root


def write_checkpoint(folder, device):
    """A run's checkpoint with trunk, heads and bank on a device; as any rank saves it."""
    from torchvision.models import resnet18

    torch.manual_seed(0)
    trunk, f, g = resnet18(), PIRLHead(512, 16), PIRLHead(512, 16, num_patches=9)
    trunk.fc = torch.nn.Identity()
    heads = {f"{n}.{k}": t for n, head in enumerate((g, f)) for k, t in head.state_dict().items()}
    names = {f"_feature_blocks.{name}": t for name, t in trunk.state_dict().items()}
    model = {"trunk": names, "heads": heads}
    model = {part: {k: t.to(device) for k, t in tensors.items()} for part, tensors in model.items()}
    bank = {"bank.rows": torch.randn(24, 16).to(device)}
    content = {"classy_state_dict": {"base_model": {"model": model}}, "loss": bank}
    folder.mkdir()
    torch.save(content, folder / "checkpoint.torch")
    config = {"DATA": {"TRAIN": {"TRANSFORMS": [{**VIEWS, "photometric": {}}]}}}
    (folder / "train_config.yaml").write_text(yaml.safe_dump(config))
    return folder / "checkpoint.torch"


def test_knn_accuracy__is_that_of_the_cpu(device):
    sizes = (20_000, 2000, 256) if device == "cuda" else (300, 50, 16)
    centres = torch.randn(30, sizes[2])
    labels = [torch.randint(30, (count,)) for count in sizes[:2]]
    features = [centres[label] + 1.5 * torch.randn(len(label), sizes[2]) for label in labels]
    for k in (1, 20):
        cpu = knn_accuracy(features[0], labels[0], features[1], labels[1], k=k)
        here = knn_accuracy(features[0].to(device), labels[0], features[1], labels[1], k=k)
        assert here == pytest.approx(cpu, abs=0.2)  # percent: neighbours at equal distance
        assert 10 < cpu <= 100


def test_export__of_tensors_on_a_gpu_is_that_of_the_cpus(device, tmp_path):
    written = []
    for name in (device, "cpu"):
        checkpoint = write_checkpoint(tmp_path / f"from_{name}{len(written)}", name)
        out = tmp_path / f"{len(written)}.pth"
        export_checkpoint(checkpoint, out, "torchvision")
        written.append(torch.load(out, weights_only=True))
    assert list(written[0]) == list(written[1])
    for name, tensor in written[0].items():
        assert tensor.device.type == "cpu"
        assert torch.equal(tensor, written[1][name]), name


def test_commands__give_the_cpus_figures(device, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    checkpoint = write_checkpoint(tmp_path / "run", device)
    found = []
    for name in (device, "cpu"):
        common = ["--checkpoint", str(checkpoint), "--device", name]
        out = tmp_path / f"out{len(found)}"
        knn = ["--data", str(photos), "--size", "32", "--k", "3", "--workers", "0"]
        run(["knn", *common, *knn, "--out", str(out)])
        more = ["--images", "24", "--transforms", "2"]
        run(["invariance", *common, "--data", str(photos / "train"), "--out", str(out), *more])
        accuracy = json.loads((out / "results.json").read_text())["knn_top1"]
        (model,) = json.loads((out / "invariance.json").read_text())["models"]
        found.append((accuracy, model))
    (accuracy, model), (expected_accuracy, expected) = found
    assert accuracy == expected_accuracy
    for part in ("heads", "bank"):
        for pairs in ("same", "different"):
            for key in ("mean", "std", "quartile_1", "median", "quartile_3"):
                value = expected[part][pairs][key]
                assert model[part][pairs][key] == pytest.approx(value, abs=1e-3), (part, key)
