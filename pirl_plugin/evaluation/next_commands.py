"""Commands that a user may run next with a checkpoint."""

from __future__ import annotations

import shlex
from pathlib import Path


def next_commands(checkpoint: Path, images: Path, to: str = "torchvision") -> dict[str, str]:
    """Return purpose → command for a pre-training checkpoint.

    Args:
        checkpoint: the checkpoint file.
        images: the training images. They are labeled if they are ``train``, or a file such as
            ``train.csv``, beside a ``val`` of the same kind.
        to: export format, torchvision, safetensors or timm.
    """
    file = f"--checkpoint {shlex.quote(str(checkpoint))}"
    data = "--data DIR"
    test = images.with_stem("val")
    if images.stem == "train" and test.exists():
        paths = ["--train", str(images), "--val", str(test)]
        data = shlex.join(["--data", str(images.parent)] if images.is_dir() else paths)
    linear = shlex.quote(str(checkpoint.with_name("linear")))
    names = {"torchvision": "trunk.pth", "safetensors": "trunk.safetensors", "timm": "timm"}
    export = shlex.quote(str(checkpoint.with_name(names[to])))
    return {
        "kNN accuracy on labeled images": f"pirl-plugin knn {file} {data}",
        "Linear classifier on labeled images": f"pirl-plugin linear {file} {data} --out {linear}",
        "The network for other programs": f"pirl-plugin export {file} --to {to} --out {export}",
    }
