"""A timm network in VISSL: pre-training, linear benchmark, kNN and export."""

from types import SimpleNamespace

import pytest
import timm
import torch

from pirl_plugin.checkpoints.export import export_checkpoint
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.models.preprocessing import normalize_images
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.views.jigsaw import JigsawViews
from pirl_plugin.vissl.adapters.method import PIRLTimm
from pirl_plugin.vissl.run.pirl_task import check_views
from tests.helpers.host_runs import run
from tests.helpers.host_tools import CPU

SECTION = "config.MODEL.TRUNK.PIRL_TIMM"
NAME, WIDTH = "vit_tiny_patch16_224", 48
OPTIONS = {"img_size": 24, "patch_size": 8, "depth": 2, "embed_dim": WIDTH, "num_heads": 2}
VIEWS = "image_size: 24, patches_crop_size: 30, patch_size: 8"


@pytest.mark.slow
def test_host__pretrains_and_evaluates_timm_network(image_folder, tmp_path):
    options = [f"+{SECTION}.OPTIONS.{key}={value}" for key, value in OPTIONS.items()]
    network = [f"{SECTION}.NAME={NAME}", *options]
    run(
        "config=pretrain/pirl/quick_jigsaw",
        "+config/pirl/models=timm",
        *network,
        f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]",
        f"config.DATA.TRAIN.TRANSFORMS=[{{name: PIRLJigsaw, {VIEWS}}}]",
        "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4",
        "config.DATA.NUM_DATALOADER_WORKERS=0",
        "config.LOSS.pirl_loss.num_negatives=8",
        "config.OPTIMIZER.num_epochs=1",
        "config.HOOKS.PIRL_INPUT.autocast=null",
        f"config.CHECKPOINT.DIR={tmp_path / 'pretrained'}",
    )
    checkpoint = tmp_path / "pretrained" / "checkpoint.torch"
    heads = torch.load(checkpoint, weights_only=True)["classy_state_dict"]["base_model"]["model"]
    assert heads["heads"]["0.project.weight"].shape == (128, WIDTH)

    run(
        "config=benchmark/pirl/linear_imagenet1k",
        "+config/pirl/linear=timm",
        *network,
        *CPU,
        f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]",
        f"config.DATA.TEST.DATA_PATHS=[{image_folder / 'val'}]",
        "config.DATA.TRAIN.TRANSFORMS.0.size=32",
        "config.DATA.TEST.TRANSFORMS.0.size=32",
        "config.DATA.TEST.TRANSFORMS.1.size=32",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={checkpoint}",
        "config.OPTIMIZER.num_epochs=3",
        f"config.CHECKPOINT.DIR={tmp_path / 'linear'}",
    )
    pretrained = load_trunk(checkpoint)
    measured = load_trunk(tmp_path / "linear" / "checkpoint.torch")
    images = normalize_images(torch.randint(256, (3, 3, 32, 32), dtype=torch.uint8))
    features = pretrained(images)
    assert features.shape == (3, WIDTH)
    assert torch.equal(measured(images), features)

    found = export_checkpoint(checkpoint, tmp_path / "timm", "timm")
    assert found.network_config.architecture == NAME
    exported = timm.create_model(f"local-dir:{tmp_path / 'timm'}", pretrained=True, num_classes=0)
    normalized = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(exported.eval()(normalized), pretrained(normalized))


def test_export__refuses_networks_unknown_to_detectron2(tmp_path):
    save_trunk(TimmTrunk("resnet10t"), tmp_path / "in.torch")
    with pytest.raises(ValueError, match="Detectron2 has no timm's resnet10t"):
        export_checkpoint(tmp_path / "in.torch", tmp_path / "out.pkl", "detectron2")
    assert not (tmp_path / "out.pkl").exists()


def test_views__are_checked_before_training():
    section = {"NAME": "test_vit", "OPTIONS": {"dynamic_img_size": True}}
    trunk = PIRLTimm(SimpleNamespace(TRUNK={"PIRL_TIMM": section}))
    pixels = torch.zeros(3, 64, 64, dtype=torch.uint8)

    def sample(patch_size):
        views = JigsawViews(image_size=64, patches_crop_size=96, patch_size=patch_size)
        return {"data": {**views(pixels), "index": 0, "data_valid": True}}

    with pytest.raises(ValueError, match=r"patches of 24 px .* multiples of 16 px: pass patch_"):
        check_views(trunk, [sample(24)])
    check_views(trunk, [sample(32)])
    check_views(trunk, [{"data": [pixels]}])  # from VISSL's transforms
