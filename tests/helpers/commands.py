"""Arguments for every command; a new command fails tests until it has an entry here."""

from __future__ import annotations

import torch

from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.models.resnet import WideResNet
from tests.helpers.host_runs import settings


def write_checkpoint(folder):
    """Write a small network with random weights and return its file."""
    torch.manual_seed(0)
    file = folder / "trunk.torch"
    save_trunk(WideResNet(10, 0.5), file)
    return file


def arguments(command, checkpoint, data, out, ranks=2):
    """Return arguments that make a command read images, write to ``out`` and start processes."""
    network = ["--checkpoint", str(checkpoint), "--data", str(data)]
    small = ["--size", "32", "--workers", "1"]
    labeled = [*network, "--size", "32", "--out", str(out)]
    trunk_file = ["--checkpoint", str(checkpoint), "--out", str(out / "trunk.pth")]
    one_epoch = ["config.OPTIMIZER.num_epochs=1", "config.DATA.NUM_DATALOADER_WORKERS=1"]
    words = {
        "train": settings(data, out, epochs=1, processes=ranks, workers=1),
        "quickstart": ["--data", str(data), "--out", str(out), "--epochs", "1"],
        "knn": [*network, *small, "--out", str(out)],
        "embed": [*network[:3], str(data / "train"), *small, "--out", str(out / "features.npz")],
        "linear": [*labeled, "--workers", "1"],
        "finetune": [*labeled, *one_epoch],
        "export": [*trunk_file, "--to", "torchvision"],
        "prepare": [str(data), str(out), "--workers", "1"],
        "configs": ["pretrain/pirl/quick_jigsaw"],
    }
    return [command, *words[command]]
