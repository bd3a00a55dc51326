"""The cache of the Hugging Face Hub, with weights as if timm had downloaded them."""

from pathlib import Path

import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

OFFLINE = {"HF_HUB_OFFLINE": "1"}


def cache_weights(home: Path, name: str) -> dict[str, Tensor]:
    """Write random weights for a timm network's default tag.

    Args:
        home: folder for ``HF_HOME``.
        name: timm's name for the network.
    """
    repository = timm.get_pretrained_cfg(name).hf_hub_id.replace("/", "--")
    folder = home / "hub" / f"models--{repository}"
    revision = "0" * 40
    (folder / "snapshots" / revision).mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(revision)
    torch.manual_seed(7)
    weights = timm.create_model(name).state_dict()
    save_file(weights, folder / "snapshots" / revision / "model.safetensors")
    return weights
