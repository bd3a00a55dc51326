"""The examples reach the losses of the host's engine: same seeds, network, data order, settings.

The settings are the examples' own; the host's run is given them. Only the network is smaller than
resnet18, and the plain loop, which has no option for it, runs three epochs, not ten.
"""

import importlib.util
import re
import runpy
from pathlib import Path

import pytest
import torch
import torchvision.models
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler

from pirl_plugin import ImageDataset, JigsawViews, PIRLHead, PIRLLoss, collate_views
from tests.helpers.examples import EXAMPLES, TORCHRUN, run_example
from tests.helpers.host_runs import run
from tests.helpers.resnet10 import resnet10

IMAGES, BATCH, EPOCHS = 64, 32, 3
STEPS = EPOCHS * IMAGES // BATCH
TOLERANCE = {"rtol": 5e-5, "atol": 0}  # float32, and the log's four decimals


@pytest.fixture(scope="module")
def photos(tmp_path_factory, make_image):
    """A folder that holds ``photos``."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "photos").mkdir()
    for i in range(IMAGES):
        make_image(folder / "photos" / f"{i:02d}.jpg", seed=i, size=96)
    return folder


def host_losses(photos, out, processes):
    """Mean loss over all ranks of each step of the host's engine, from the examples' weights."""
    torch.manual_seed(0)  # as the examples draw theirs: trunk, f, g
    trunk, f, g = resnet10(), PIRLHead(512), PIRLHead(512, num_patches=9)
    state = {f"_feature_blocks.{name}": value for name, value in trunk.state_dict().items()}
    heads = {
        f"{place}.{name}": value
        for place, head in enumerate((g, f))
        for name, value in head.state_dict().items()
    }
    weights = out / "weights.torch"
    model = {"model": {"trunk": {n: v for n, v in state.items() if ".fc." not in n}}}
    model["model"]["heads"] = heads
    torch.save({"classy_state_dict": {"base_model": model}}, weights)
    run(
        "config=pretrain/pirl/quick_jigsaw",
        f"config.DATA.TRAIN.DATA_PATHS=[{photos / 'photos'}]",
        f"config.CHECKPOINT.DIR={out / 'run'}",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={weights}",
        "config.MODEL.TRUNK.PIRL_RESNET.WIDTH_MULTIPLIER=1",
        "config.MODEL.HEAD.IN_DIM=512",
        "config.DATA.TRAIN.VIEWS.image_scale=[0.08,1.0]",
        "config.LOSS.pirl_loss.lambda_invariance=0.5",
        "config.LOSS.pirl_loss.bank.init=random",
        f"config.DATA.TRAIN.BATCHSIZE_PER_REPLICA={BATCH // processes}",
        f"config.DISTRIBUTED.NUM_PROC_PER_NODE={processes}",
        f"config.OPTIMIZER.num_epochs={EPOCHS}",
        "config.OPTIMIZER.param_schedulers.lr.name=constant",
        "config.OPTIMIZER.param_schedulers.lr.value=0.03",
        "config.OPTIMIZER.regularize_bn=true",
        "config.OPTIMIZER.regularize_bias=true",
        "config.HOOKS.PIRL_INPUT.autocast=null",
        "config.LOG_FREQUENCY=1",
    )
    log = (out / "run" / "log.txt").read_text()
    assert "heads.0.project.weight" in log  # was loaded, with the rest
    terms = re.findall(r"PIRL: invariance: ([\d.]+); image: ([\d.]+);", log)
    return torch.tensor([[float(term) for term in pair] for pair in terms]).mean(dim=1)  # Eq. 5


@pytest.fixture(scope="module")
def of_one_process(photos, tmp_path_factory):
    losses = host_losses(photos, tmp_path_factory.mktemp("one"), processes=1)
    assert len(losses) == STEPS
    return losses


@pytest.fixture
def recorded(monkeypatch):
    """The value of each call of the loss, and the small network in the place of resnet18."""
    values = []
    forward = PIRLLoss.forward

    def record(self, *arguments):
        value = forward(self, *arguments)
        values.append(value.item())
        return value

    monkeypatch.setattr(PIRLLoss, "forward", record)
    monkeypatch.setattr(torchvision.models, "resnet18", resnet10)
    return values


def in_the_hosts_order(sampler):
    """The rows of an epoch, in the order of the host's sampler, for DataLoader(shuffle=True)."""
    data = sampler.data_source
    order = DistributedSampler(data, num_replicas=1, rank=0)
    order.set_epoch(data.epoch)
    return iter(order)


def test_plain_pytorch__has_the_hosts_losses(of_one_process, photos, recorded, monkeypatch):
    program = (EXAMPLES / "plain_pytorch.py").read_text()
    assert program.count("range(10)") == 1
    monkeypatch.chdir(photos)
    Path("loop.py").write_text(program.replace("range(10)", f"range({EPOCHS})"))
    monkeypatch.setattr(RandomSampler, "__iter__", in_the_hosts_order)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    torch.manual_seed(0)
    runpy.run_path("loop.py", run_name="__main__")
    torch.testing.assert_close(torch.tensor(recorded), of_one_process, **TOLERANCE)


@pytest.mark.skipif(not importlib.util.find_spec("lightning"), reason="lightning is not installed")
def test_lightning__has_the_hosts_losses(of_one_process, photos, recorded, monkeypatch):
    import lightning

    example = runpy.run_path(str(EXAMPLES / "lightning_module.py"))
    monkeypatch.setattr(RandomSampler, "__iter__", in_the_hosts_order)
    views = JigsawViews(image_size=64, patches_crop_size=96, patch_size=24)
    data = ImageDataset(photos / "photos", views)
    loader = DataLoader(data, BATCH, shuffle=True, drop_last=True, collate_fn=collate_views)
    torch.manual_seed(0)
    model = example["PIRL"](len(data))
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    torch.testing.assert_close(torch.tensor(recorded), of_one_process, **TOLERANCE)


@pytest.mark.slow
def test_ddp__has_the_hosts_losses(photos, tmp_path):
    """Each process has batch statistics of its own, in the host's run of two processes too."""
    expected = host_losses(photos, tmp_path, processes=2)
    options = ["--epochs", str(EPOCHS), "--batch-size", str(BATCH // 2)]
    example = [EXAMPLES / "ddp.py", "photos", *options]
    result = run_example(photos, "resnet10", *example, launcher=TORCHRUN)
    assert result.returncode == 0, result.stderr
    printed = [float(line.split()[1]) for line in result.stdout.splitlines()]
    last_of_epochs = expected[IMAGES // BATCH - 1 :: IMAGES // BATCH]
    torch.testing.assert_close(torch.tensor(printed), last_of_epochs, **TOLERANCE)
