"""``pirl-plugin knn`` on generated images."""

import json
import shutil

import pytest
import torch
import yaml
from torchvision.transforms.v2 import functional as tv

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.cli import run
from pirl_plugin.evaluation.features import read_images, trunk_features
from pirl_plugin.evaluation.image_folder import LabelledCrops, default_workers, labelled_features
from pirl_plugin.evaluation.pretext_checkpoint import load_pretext_model
from pirl_plugin.models.resnet import ResNetTrunk
from tests.helpers.host_tools import write_checkpoint, write_classes


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("trunk") / "small.torch", DEPTH=10)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return write_classes(folder, {"train": 12, "val": 6}, separable=True, classes=3)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_knn__finds_separable_classes(workers, checkpoint, data, tmp_path, capsys):
    arguments = ["--checkpoint", str(checkpoint), "--data", str(data), "--out", str(tmp_path)]
    run(["knn", *arguments, "--size", "32", "--k", "3", "--batch", "5", "--workers", workers])
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["knn_top1"] == 100.0
    found = {key: results[key] for key in ("classes", "train_images", "test_images", "k")}
    assert found == {"classes": 3, "train_images": 12, "test_images": 6, "k": 3}
    assert "kNN top-1 100.00 % (k = 3, 12 images of 3 classes, 6 tested" in capsys.readouterr().out


def test_labelled_features__are_those_of_all_images_at_once(checkpoint, data):
    trunk = load_trunk(checkpoint)
    crops = LabelledCrops(data / "train", 32)
    features, labels, unreadable = labelled_features(trunk, crops, 5, 0, torch.device("cpu"))
    images, paths = read_images(data / "train", 32)
    torch.testing.assert_close(features, trunk_features(trunk, images))
    assert labels.tolist() == [int(path[len("class")]) for path in paths]
    assert unreadable == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: compares it with the CPU")
def test_knn__finds_the_same_on_a_gpu(checkpoint, data, tmp_path):
    found = []
    for device in ("cpu", "cuda"):
        arguments = ["--checkpoint", str(checkpoint), "--data", str(data), "--device", device]
        run(["knn", *arguments, "--size", "32", "--out", str(tmp_path / device)])
        found.append(json.loads((tmp_path / device / "results.json").read_text())["knn_top1"])
    assert found[0] == found[1]


def test_knn__counts_images_that_cannot_be_read(checkpoint, data, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    (folder / "train" / "class0" / "0.png").write_bytes(b"no image")
    arguments = ["--checkpoint", str(checkpoint), "--data", str(folder), "--out", str(tmp_path)]
    run(["knn", *arguments, "--size", "32"])
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["train_images"], results["unreadable"]) == (11, 1)


@pytest.mark.parametrize("wrapped", [False, True])
def test_load_trunk__reads_the_form_and_a_benchmarks_own_checkpoint(wrapped, tmp_path):
    path = write_checkpoint(tmp_path / "18.torch", WIDTH_MULTIPLIER=0.25, DEPTH=18)
    expected = load_trunk(path).state_dict()
    if wrapped:
        file = torch.load(path, weights_only=False)
        model = file["classy_state_dict"]["base_model"]["model"]
        model["trunk"] = {f"base_model.{k}": v for k, v in model["trunk"].items()}
        torch.save(file, path)
    found = load_trunk(path).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_load_trunk__gives_the_features_of_vissls_own_trunk(tmp_path):
    from vissl.models.trunks import MODEL_TRUNKS_REGISTRY
    from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

    overrides = ["config=benchmark/pirl/linear_imagenet1k"]
    composed = compose_hydra_configuration(overrides)
    model = convert_to_attrdict(composed, dump_config=False)[1].MODEL
    torch.manual_seed(0)
    theirs = MODEL_TRUNKS_REGISTRY["resnet"](model, "resnet").eval()
    state = {"model": {"trunk": theirs.state_dict(), "heads": {}}}
    torch.save({"classy_state_dict": {"base_model": state}}, tmp_path / "vissl.torch")
    ours = load_trunk(tmp_path / "vissl.torch")
    images, names = torch.randn(1, 3, 64, 64), ["conv1", "res3", "flatten"]
    with torch.no_grad():
        for mine, expected in zip(ours(images, names), theirs(images, names), strict=True):
            torch.testing.assert_close(mine.flatten(), expected.flatten())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoint": "nowhere"}, "there is no file nowhere"),
        ({"data": "train"}, "--data = .*train: expected a folder with train/CLASS.* no train;"),
        ({"data": "nowhere"}, "--data = .*nowhere: expected .* no such folder"),
        (
            {"data": "odd"},
            "expected the same classes in train and val, which have 3 and 2; 'class2' is in one",
        ),
    ],
)
def test_knn__refuses_in_one_sentence(change, message, checkpoint, data, tmp_path):
    odd = tmp_path / "odd"
    shutil.copytree(data, odd)
    shutil.rmtree(odd / "val" / "class2")
    options = {"checkpoint": checkpoint, "data": data, "k": "3", "size": "32"} | change
    named = {"train": data / "train", "odd": odd, "nowhere": tmp_path / "nowhere"}
    options["data"] = named.get(options["data"], data)
    arguments = [part for key, value in options.items() for part in (f"--{key}", str(value))]
    with pytest.raises(SystemExit, match=message) as stopped:
        run(["knn", *arguments])
    assert len(str(stopped.value).splitlines()) == 1


def test_knn__names_shards(checkpoint, tmp_path):
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "000000.tar").touch()
    arguments = ["--checkpoint", str(checkpoint), "--data", str(tmp_path), "--size", "32"]
    with pytest.raises(SystemExit, match="train: expected images in files of their own, and found"):
        run(["knn", *arguments])


@pytest.fixture
def run_of_64_px(checkpoint, data, tmp_path):
    """The checkpoint in the folder of a 64-px run on the training images."""
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(checkpoint, folder / "small.torch")
    train = {"TRANSFORMS": [{"name": "PIRLJigsaw", "image_size": 64}]}
    train["DATA_PATHS"] = [str(data / "train")]
    (folder / "train_config.yaml").write_text(yaml.safe_dump({"DATA": {"TRAIN": train}}))
    return folder / "small.torch"


def test_knn__size_and_data_are_those_of_the_run(run_of_64_px, data, tmp_path, capsys):
    run(["knn", "--checkpoint", str(run_of_64_px), "--out", str(tmp_path / "out")])
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (results["size"], results["data"], results["train_images"]) == (64, str(data), 12)
    captured = capsys.readouterr()
    assert f"64-px crops of {data / 'train'} and {data / 'val'}" in captured.out
    assert "images/s" in captured.err  # and the time left


@pytest.mark.parametrize(
    ("transforms", "expected"),
    [
        ([{"name": "RandomResizedCrop", "size": 48}, {"name": "ToTensor"}], 48),
        ([{"name": "Resize", "size": 64}, {"name": "CenterCrop", "size": 48}], 48),
        ([{"name": "ImgPilToPatchesAndImage", "crop_size_image": 48}], 48),  # VISSL's PIRL
        ([{"name": "PIRLRotation"}], 224),  # by its default
        ([{"name": "PredictJigsaw"}], 224),
        (
            [{"name": "PredictJigsaw", "patch_size": 24}],
            r"--size is not given, .* on 24-px patches",
        ),
    ],
)
def test_knn__size_of_other_runs_than_pirls(transforms, expected, run_of_64_px, data, tmp_path):
    """Runs of 64 px were measured at 224."""
    file = run_of_64_px.parent / "train_config.yaml"
    config = {"DATA": {"TRAIN": {"TRANSFORMS": transforms, "DATA_PATHS": [str(data / "train")]}}}
    file.write_text(yaml.safe_dump(config))
    arguments = ["knn", "--checkpoint", str(run_of_64_px), "--out", str(tmp_path / "out")]
    if isinstance(expected, str):
        with pytest.raises(SystemExit, match=expected):
            run(arguments)
        arguments, expected = [*arguments, "--size", "64"], 64
    run(arguments)
    assert json.loads((tmp_path / "out" / "results.json").read_text())["size"] == expected


@pytest.mark.parametrize("where", ["DATA", "HOOKS.PIRL_INPUT"])
def test_features__are_normalised_as_the_run_was_trained(where, run_of_64_px, data, monkeypatch):
    """ImageNet's mean and deviation were taken without a word."""
    file = run_of_64_px.parent / "train_config.yaml"
    config = yaml.safe_load(file.read_text())
    statistics = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}
    if where == "DATA":
        config["DATA"] |= {key.upper(): values for key, values in statistics.items()}
    else:  # what training reads, whatever DATA says
        config["HOOKS"] = {"PIRL_INPUT": statistics}
        config["DATA"] |= {"MEAN": [0.9] * 3, "STD": [0.9] * 3}
    file.write_text(yaml.safe_dump(config))
    images, _ = read_images(data / "val", 64)
    expected = tv.normalize(images / 255, [0.1, 0.2, 0.3], [0.5, 0.6, 0.7])
    seen = []
    forward = ResNetTrunk.forward

    def see(trunk, images, *keys):
        seen.append(images)
        return forward(trunk, images, *keys)

    monkeypatch.setattr(ResNetTrunk, "forward", see)
    run(["knn", "--checkpoint", str(run_of_64_px), "--out", str(file.parent / "out")])
    torch.testing.assert_close(seen[-1], expected)
    load_pretext_model(run_of_64_px).embed_images(images)
    torch.testing.assert_close(seen[-1], expected)


def test_knn__takes_validation_for_val(run_of_64_px, data, tmp_path):
    other = tmp_path / "data"
    shutil.copytree(data, other)
    (other / "val").rename(other / "validation")
    arguments = ["--checkpoint", str(run_of_64_px), "--data", str(other), "--size", "32"]
    run(["knn", *arguments, "--out", str(tmp_path / "out")])
    assert json.loads((tmp_path / "out" / "results.json").read_text())["test_images"] == 6


def test_knn__without_data_anywhere(checkpoint):
    with pytest.raises(SystemExit, match=r"--data is not given, and no train_config\.yaml beside"):
        run(["knn", "--checkpoint", str(checkpoint)])


def test_knn__relative_data_of_the_run_is_no_folder_of_this_one(
    run_of_64_px, data, tmp_path, monkeypatch
):
    """Another folder of that name was measured, or called the run's."""
    file = run_of_64_px.parent / "train_config.yaml"
    config = yaml.safe_load(file.read_text())
    config["DATA"]["TRAIN"]["DATA_PATHS"] = ["train"]
    file.write_text(yaml.safe_dump(config))
    monkeypatch.chdir(data)
    arguments = ["knn", "--checkpoint", str(run_of_64_px), "--out", str(tmp_path / "out")]
    message = "was trained on train, relative to the folder that it was started in: .* --data DIR"
    with pytest.raises(SystemExit, match=message):
        run(arguments)
    run([*arguments, "--data", "."])


@pytest.mark.parametrize("option", ["--size=0", "--batch=0", "--workers=-1"])
def test_knn__refuses_numbers_out_of_range(option, checkpoint, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(["knn", "--checkpoint", str(checkpoint), option])
    assert stopped.value.code == 2
    name, _, value = option.partition("=")
    assert f"argument {name}: {value}: expected" in capsys.readouterr().err


def test_default_workers__follow_cores_and_images(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    assert [default_workers(n) for n in (10, 600, 100_000)] == [0, 2, 6]
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert default_workers(100_000) == 0


def test_load_trunk__refuses_other_trunks(tmp_path):
    state = {"model": {"trunk": {"blocks.0.weight": torch.ones(1)}, "heads": {}}}
    torch.save({"classy_state_dict": {"base_model": state}}, tmp_path / "vit.torch")
    with pytest.raises(ValueError, match=r"holds no ResNet trunk: .*it has blocks\.0\.weight"):
        load_trunk(tmp_path / "vit.torch")


def test_knn__refuses_what_no_classifier_is_measured_by(checkpoint, tmp_path):
    one = write_classes(tmp_path / "one", {"train": 4, "val": 2}, separable=True, classes=1)
    with pytest.raises(SystemExit, match="at least two classes in train, and found 'class0' alone"):
        run(["knn", "--checkpoint", str(checkpoint), "--data", str(one), "--size", "32"])
    two = write_classes(tmp_path / "two", {"train": 4, "val": 2}, separable=True, classes=2)
    stray = two / "train" / "stray.png"
    stray.write_bytes(b"")
    with pytest.raises(SystemExit, match=r"stray\.png lies beside the folders of the classes"):
        run(["knn", "--checkpoint", str(checkpoint), "--data", str(two), "--size", "32"])
    stray.unlink()
    for path in (two / "val").rglob("*.*"):
        path.write_bytes(b"no image")
    with pytest.raises(SystemExit, match=r"val: expected images that can be read, and none of 2 c"):
        run(["knn", "--checkpoint", str(checkpoint), "--data", str(two), "--size", "32"])
