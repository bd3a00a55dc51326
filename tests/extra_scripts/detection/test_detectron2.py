"""With Detectron2: the paper's model, and small runs from a checkpoint to AP."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import train_net
import trial
from detectron2_setup import find_config, load_config, metric_kind
from PIL import Image
from trial import register_extra_norm

from pirl_plugin.checkpoints.export import export_checkpoint
from pirl_plugin.vissl.adapters.method import PIRLResNet
from pirl_plugin.vissl.host_config import config_root
from tests.helpers.detection import NARROW, SMALL, WIDTH, needs_detectron2
from tests.helpers.export_files import small_trunk, vissl_checkpoint
from tests.helpers.programs import run_python

pytestmark = needs_detectron2
FILES = sorted((config_root() / "detection").glob("*.yaml"))


def model_of(name, *options):
    from detectron2.modeling import build_model

    config = load_config(find_config(name), ["MODEL.DEVICE", "cpu", *options])
    return config, build_model(config)


def test_model__keeps_batch_norm_and_pixel_statistics():
    from detectron2.layers import FrozenBatchNorm2d

    config, model = model_of("voc07_pirl", *NARROW)
    assert config.SOLVER.IMS_PER_BATCH == 16
    norms = [m for m in model.modules() if "Norm" in type(m).__name__]
    assert len(norms) == 53
    assert all(isinstance(m, FrozenBatchNorm2d) for m in norms)
    before = {n: t.clone() for n, t in model.state_dict().items() if ".norm." in n}
    assert not [n for n, _ in model.named_parameters() if ".norm." in n]
    model.train().backbone(torch.randn(2, 3, 64, 64))
    assert all(torch.equal(t, model.state_dict()[n]) for n, t in before.items())
    image = torch.tensor([123.675, 116.28, 103.53]).view(3, 1, 1).expand(3, 32, 32)
    (normalized,) = model.preprocess_image([{"image": image}]).tensor
    assert torch.equal(normalized, torch.zeros_like(normalized))
    std = torch.tensor([58.395, 57.12, 57.375]).view(3, 1, 1)
    (normalized,) = model.preprocess_image([{"image": image + std}]).tensor
    torch.testing.assert_close(normalized, torch.ones_like(normalized))


def test_model__matches_trunk_res4_and_res5_bit_for_bit(tmp_path):
    from detectron2.checkpoint import DetectionCheckpointer

    trunk = small_trunk(50, WIDTH)
    torch.save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    export_checkpoint(tmp_path / "in.torch", tmp_path / "out.pkl", "detectron2")
    _, model = model_of("voc07_pirl", *NARROW)
    DetectionCheckpointer(model).load(str(tmp_path / "out.pkl"))
    ours = PIRLResNet(
        SimpleNamespace(TRUNK={"PIRL_RESNET": {"DEPTH": 50, "WIDTH_MULTIPLIER": WIDTH}})
    )
    ours.load_state_dict(trunk)
    images = torch.randn(1, 3, 96, 96, generator=torch.Generator().manual_seed(0)) / 8
    with torch.no_grad():
        res4, res5 = ours.eval()(images, ["res4", "res5"])
        assert torch.equal(model.eval().backbone(images)["res4"], res4)
        assert torch.equal(model.roi_heads.res5(res4), res5)
    assert res5.isfinite().all()
    assert res5.abs().max() > 0


def test_moco24k__adds_norm_after_res5():
    register_extra_norm()
    register_extra_norm()  # again, without a clash
    _, model = model_of("voc0712_moco24k", *NARROW)
    res5 = model.roi_heads.res5
    assert [name for name, _ in res5.named_children()] == ["0", "1", "2", "norm"]
    assert isinstance(res5.norm, torch.nn.SyncBatchNorm)
    assert res5.norm.num_features == 512
    assert all(p.requires_grad for p in model.parameters())


@pytest.fixture(scope="module")
def voc(tmp_path_factory, make_image):
    """Create VOC2007 with three training and three test images, each with two objects."""
    root = tmp_path_factory.mktemp("datasets")
    folder = root / "VOC2007"
    for part in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (folder / part).mkdir(parents=True)
    for i in range(6):
        make_image(folder / "JPEGImages" / f"{i:06}.jpg", seed=i, size=96)
        assert Image.open(folder / "JPEGImages" / f"{i:06}.jpg").size == (96, 96)
        objects = "".join(
            f"<object><name>{name}</name><pose>Left</pose><truncated>0</truncated>"
            f"<difficult>0</difficult><bndbox><xmin>{x}</xmin><ymin>{x}</ymin>"
            f"<xmax>{x + 40}</xmax><ymax>{x + 40}</ymax></bndbox></object>"
            for name, x in (("cat", 5 + i), ("dog", 45 + i))
        )
        size = "<size><width>96</width><height>96</height><depth>3</depth></size>"
        (folder / "Annotations" / f"{i:06}.xml").write_text(
            f"<annotation>{size}{objects}</annotation>"
        )
    for split, rows in (("trainval", range(3)), ("test", range(3, 6))):
        ids = "".join(f"{i:06}\n" for i in rows)
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text(ids)
    return root


def run(script, *arguments, root):
    return run_python(script, *arguments, check=False, DETECTRON2_DATASETS=str(root))


def benchmark(*arguments, root):
    return run(train_net.__file__, *arguments, root=root)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "model_final_checkpoint_phase0.torch"
    torch.save(vissl_checkpoint(small_trunk(50, WIDTH)), path)
    return path


def test_benchmark__runs_from_checkpoint_to_ap(voc, checkpoint, tmp_path):
    out = tmp_path / "out"
    arguments = ["--config", "smoke_cpu", "--checkpoint", checkpoint, "--out", out, "--data", voc]
    result = benchmark(*arguments, *SMALL, "SOLVER.MAX_ITER", "3", root="elsewhere")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr
    assert "1 finished: AP " in result.stdout
    results = json.loads((out / "results.json").read_text())
    assert (results["config"], results["num_gpus"]) == ("smoke_cpu", 0)
    assert results["metric"] == "PASCAL VOC 2007, 11 recall points, IoU 0.50:0.95"
    assert results["images"] == {"voc_2007_trainval": 3, "voc_2007_test": 3}
    assert results["network"] == "ResNet-50 of width 0.25"
    assert {"detectron2", "torch", "torchvision", "pirl_plugin"} <= set(results["versions"])
    (trial,) = results["trials"]
    assert (trial["seed"], trial["iterations"], trial["images_per_step"]) == (0, 3, 2)
    assert all(0 <= trial[metric] <= 100 for metric in ("AP", "AP50", "AP75"))
    assert results["mean"]["AP"] == trial["AP"]
    assert "SEED: 0" in (out / "trial_0" / "trial.yaml").read_text()

    other = benchmark(*arguments, *SMALL, "SOLVER.MAX_ITER", "4", root=voc)
    assert other.returncode != 0
    assert "belongs to the run with options" in other.stderr


def test_benchmark__refuses_mismatched_weights(voc, tmp_path):
    """Detectron2 itself only warns: on a trial's second start, the weights have another shape."""
    out = tmp_path / "out"
    wrong = tmp_path / "wrong.pkl"
    torch.save(vissl_checkpoint(small_trunk(50, 0.125)), tmp_path / "wrong.torch")
    export_checkpoint(tmp_path / "wrong.torch", wrong, "detectron2")
    config = load_config(find_config("smoke_cpu"), [*SMALL, "MODEL.WEIGHTS", str(wrong)])
    config.OUTPUT_DIR = str(out)
    out.mkdir()
    (out / "trial.yaml").write_text(config.dump())
    result = run(trial.__file__, out, "0", root=voc)
    assert result.returncode != 0
    assert "the model's backbone and res5 differ from the file: " in result.stderr
    assert "Starting training" not in result.stdout
    assert not (out / "result.json").exists()


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ({"--config": "voc09"}, "Choose one of coco_c4_1x, .* or a file"),
        ({"--checkpoint": "none.pkl"}, "No such file .*none.pkl"),
        ({"--data": "nowhere"}, "No such file .*trainval.txt"),
    ],
    ids=["config", "weights", "data"],
)
def test_benchmark__refuses_invalid_options(what, match, voc, checkpoint, tmp_path):
    options = {"--config": "smoke_cpu", "--checkpoint": checkpoint, "--data": voc, **what}
    arguments = [word for option in options.items() for word in option]
    result = benchmark(*arguments, "--out", tmp_path / "out", *SMALL, root=voc)
    assert result.returncode == 1
    assert re.search(match, result.stderr)
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out" / "trial_0").exists()


@pytest.mark.parametrize("config", ["smoke_cpu", "voc0712_moco24k"])
def test_vissls_own_tool__accepts_our_configs_and_weights(config, voc, checkpoint, tmp_path):
    import tools

    export_checkpoint(checkpoint, tmp_path / "out.pkl", "detectron2")
    script = Path(tools.__path__[0], "object_detection_benchmark.py")
    smoke = load_config(find_config("smoke_cpu"))
    options = {
        "MODEL.WEIGHTS": tmp_path / "out.pkl",
        "MODEL.DEVICE": "cpu",
        "MODEL.RPN.POST_NMS_TOPK_TRAIN": smoke.MODEL.RPN.POST_NMS_TOPK_TRAIN,
        "MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE": smoke.MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE,
        "DATASETS.TRAIN": "('voc_2007_trainval',)",
        "DATALOADER.NUM_WORKERS": 0,
        "SOLVER.IMS_PER_BATCH": 2,
        "SOLVER.REFERENCE_WORLD_SIZE": 0,
        "SOLVER.BASE_LR": 1e-5,
        "SOLVER.STEPS": "(1,)",
        "SOLVER.MAX_ITER": 2,
        "TEST.PRECISE_BN.NUM_ITER": 1,
        "OUTPUT_DIR": tmp_path / "out",
    }
    pairs = [part for pair in options.items() for part in pair]
    result = run(script, "--config-file", find_config(config), *SMALL, *pairs, root=voc)
    said = result.stdout + result.stderr
    assert result.returncode == 0, said[-3000:]
    assert "copypaste: AP,AP50,AP75" in said
    trained = torch.load(tmp_path / "out" / "model_final.pth", weights_only=True)["model"]
    assert ("roi_heads.res5.norm.weight" in trained) == (config == "voc0712_moco24k")
    missing = said.partition("not found in the checkpoint:")[2].partition("[")[0]
    assert "backbone" not in missing
    assert "res5.0" not in missing


def test_configs__have_only_keys_known_to_detectron2(subtests):
    for file in FILES:
        with subtests.test(file=file.stem):
            assert load_config(file).VERSION == 2  # an unknown key would have raised


def test_load_config__refuses_unknown_key():
    with pytest.raises((KeyError, AssertionError), match=r"SOLVER\.BASE_RATE"):
        load_config(find_config("voc07_pirl"), ["SOLVER.BASE_RATE", "1"])


def test_metric__is_named():
    assert metric_kind("voc_2007_test").startswith("PASCAL VOC 2007, 11 recall points")
    assert metric_kind("voc_2012_val").startswith("PASCAL VOC 2010 and later")
    assert metric_kind("coco_2017_val").startswith("COCO")
