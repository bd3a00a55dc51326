"""A classifier as a module, in ONNX and in other programs: the same probabilities everywhere."""

import csv
import json
from importlib.util import find_spec

import pytest
import timm
import torch
import torchvision
from PIL import Image
from safetensors import safe_open
from torchvision.transforms.v2 import functional as tv

import pirl_plugin as pirl
from pirl_plugin import cli
from pirl_plugin.checkpoints.classifier import Classifier
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.models.preprocessing import center_crop, normalize_images
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.models.trunks import layer_features
from pirl_plugin.system.failures import Refused

CLASSES = ["ant", "bee", "wasp"]
SIZES = [(80, 60), (33, 81), (64, 64), (300, 20)]


def save(trunk, path, layer="last"):
    """Save a trunk with a random classifier, whose probabilities differ between images."""
    torch.manual_seed(0)
    trunk.network_config = trunk.network_config.with_values("test", size=48, mean=(0.4, 0.5, 0.6))
    images = torch.zeros(1, trunk.network_config.channels, 48, 48)
    (features,) = layer_features(trunk.eval(), images, [layer])
    weight = torch.randn(3, features.shape[1])
    weight *= 3 / weight.norm(dim=1, keepdim=True)
    pirl.save_trunk(trunk, path, Classifier(weight, torch.zeros(3), CLASSES, layer))
    return path


def photos():
    generator = torch.Generator().manual_seed(0)
    for width, height in SIZES:
        coarse = torch.rand(1, 3, 6, 8, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
        yield (255 * smooth[0]).to(torch.uint8)


@pytest.mark.parametrize("layer", ["last", "res3"])
def test_module__predicts_as_embed_does(layer, tmp_path):
    file = save(WideResNet(10, 0.25), tmp_path / "classifier.torch", layer)
    (tmp_path / "photos").mkdir()
    for number, photo in enumerate(photos()):
        tv.to_pil_image(photo).save(tmp_path / "photos" / f"{number}.png")
    out = tmp_path / "out.csv"
    command = f"embed --checkpoint {file} --data {tmp_path / 'photos'} --out {out} --no-features"
    cli.run(command.split())
    classifier = pirl.load_classifier(file)
    assert classifier.classes == CLASSES
    with out.open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == len(SIZES)
    for row in rows:
        image = tv.pil_to_tensor(Image.open(tmp_path / "photos" / row["file"]))
        with torch.no_grad():
            (probabilities,) = classifier(image[None])
        assert CLASSES[probabilities.argmax()] == row["predicted"]
        assert probabilities.max().item() == pytest.approx(float(row["probability"]), abs=1e-5)
    with pytest.raises(Refused, match="dtype = 'float32': expected one of uint8"):
        classifier(torch.rand(1, 3, 40, 40))


def test_module__reads_other_dtypes(tmp_path):
    trunk = WideResNet(10, 0.25, in_channels=2)
    trunk.network_config = trunk.network_config.with_values(
        "test", dtype="uint16", mean=(500, 400), std=(90, 80)
    )
    trunk.network_config = trunk.network_config.with_values("test", size=48)
    head = Classifier(torch.randn(3, 128), torch.zeros(3), CLASSES, "last")
    pirl.save_trunk(trunk, tmp_path / "in.torch", head)
    images = torch.randint(900, (2, 2, 50, 60)).to(torch.uint16)
    with torch.no_grad():
        probabilities = pirl.load_classifier(tmp_path / "in.torch")(images)
        inputs = normalize_images(center_crop(images, 48), (500, 400), (90, 80))
        features = trunk.eval()(inputs)
    expected = (features @ head.weight.T).softmax(1)
    torch.testing.assert_close(probabilities, expected, rtol=1e-4, atol=1e-5)


def test_load_classifier__refuses_files_without_one(tmp_path):
    pirl.save_trunk(WideResNet(10, 0.125), tmp_path / "in.torch")
    with pytest.raises(Refused, match=r"in\.torch holds no classifier\. pirl-plugin linear"):
        pirl.load_classifier(tmp_path / "in.torch")


def probabilities_of(model, image, config):
    inputs = normalize_images(center_crop(image, 48)[None], config.mean, config.std)
    with torch.no_grad():
        return model.eval()(inputs).softmax(1)[0]


@pytest.mark.parametrize("to", ["torchvision", "timm", "safetensors", "vissl"])
@pytest.mark.parametrize("kind", [lambda: WideResNet(18), lambda: TimmTrunk("test_vit")])
def test_export__keeps_classifier_and_class_names(to, kind, tmp_path, capsys):
    file = save(kind(), tmp_path / "in.torch")
    out = tmp_path / "out"
    assert cli.run(f"export --checkpoint {file} --to {to} --out {out}".split()) == 0
    said = capsys.readouterr().out
    assert "classes: ant, bee, wasp" in said
    image = next(photos())
    classifier = pirl.load_classifier(file)
    with torch.no_grad():
        (expected,) = classifier(image[None])
    if to == "vissl":
        with torch.no_grad():
            (found,) = pirl.load_classifier(out)(image[None])
    else:
        import safetensors.torch

        scope = {"torch": torch, "torchvision": torchvision, "timm": timm}
        scope["safetensors"] = safetensors
        exec(said.partition("To load it:\n\n")[2], scope)
        found = probabilities_of(scope["model"], image, classifier.network_config)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    if to == "timm":
        assert json.loads((out / "config.json").read_text())["label_names"] == CLASSES
        assert load_trunk(out / "model.safetensors").num_features
    if to == "safetensors":
        with safe_open(out, "pt") as content:
            assert json.loads(content.metadata()["classes"]) == CLASSES


def test_export__drops_no_classifier_in_silence(tmp_path):
    inner = save(WideResNet(18), tmp_path / "inner.torch", "res3")
    pooled = save(WideResNet(18), tmp_path / "pooled.torch")
    for file, to in ((inner, "timm"), (inner, "torchvision"), (pooled, "detectron2")):
        command = f"export --checkpoint {file} --to {to} --out {tmp_path / 'out'}".split()
        with pytest.raises(Refused, match=rf"layer (res3|last), which {to} .* `features_only`"):
            cli.run(command)
        assert not (tmp_path / "out").exists()
    assert cli.run([*command, "--features-only"]) == 0


@pytest.mark.parametrize(
    ("kind", "layer"),
    [
        (lambda: WideResNet(10, 0.25), "res3"),
        (lambda: TimmTrunk("test_vit"), "last"),
        (lambda: TimmTrunk("convnext_atto"), "last"),
        (lambda: WideResNet(10, 0.25), None),
    ],
)
def test_onnx__computes_the_same_for_any_number_and_size(kind, layer, tmp_path):
    pytest.importorskip("onnx", reason="needs pip install pirl-plugin[onnx]")
    pytest.importorskip("onnxscript", reason="needs pip install pirl-plugin[onnx]")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs pip install pirl-plugin[onnx]")
    trunk = kind()
    file = save(trunk, tmp_path / "in.torch", layer or "last")
    out = tmp_path / "out.onnx"
    pirl.export_checkpoint(file, out, "onnx", features_only=layer is None)
    session = onnxruntime.InferenceSession(str(out))
    names = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    assert names == ([] if layer is None else CLASSES)
    module = pirl.load_classifier(file)
    for photo in photos():
        images = torch.stack([photo, photo.flip(2), photo.flip(1)])
        (found,) = session.run(None, {"images": images.numpy()})
        with torch.no_grad():
            expected = module(images)
        if layer is None:
            assert found.shape == (3, trunk.num_features)
            continue
        assert abs(torch.from_numpy(found) - expected).max() < 0.01
        first, second = expected.topk(2).values.unbind(1)
        is_clear = first - second > 0.02
        assert torch.equal(
            torch.from_numpy(found).argmax(1)[is_clear], expected.argmax(1)[is_clear]
        )


@pytest.mark.skipif(find_spec("onnxscript") is not None, reason="the extra onnx is installed")
def test_onnx__names_the_missing_packages(tmp_path):
    pirl.save_trunk(WideResNet(10, 0.125), tmp_path / "in.torch")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'pirl-plugin\[onnx\]'"):
        pirl.export_checkpoint(tmp_path / "in.torch", tmp_path / "out.onnx", "onnx")
