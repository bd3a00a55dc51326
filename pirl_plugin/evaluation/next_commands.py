"""Commands that a user may run next with a checkpoint."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def program_name() -> str:
    """Return how to start ``pirl-plugin`` in a shell: by its path, unless it is on PATH."""
    script = Path(sys.executable).with_name("pirl-plugin")
    on_path = shutil.which("pirl-plugin")
    if not script.is_file() or (on_path is not None and script.samefile(on_path)):
        return "pirl-plugin"
    return shlex.quote(str(script))


def next_commands(checkpoint: Path, to: str = "torchvision") -> dict[str, str]:
    """Return purpose → command for a pre-training checkpoint; ``DIR`` is for the user to fill in.

    Args:
        checkpoint: the checkpoint file.
        to: export format, torchvision, safetensors or timm.
    """
    program = program_name()
    file = f"--checkpoint {shlex.quote(str(checkpoint))}"
    linear = shlex.quote(str(checkpoint.with_name("linear")))
    names = {"torchvision": "trunk.pth", "safetensors": "trunk.safetensors", "timm": "timm"}
    export = shlex.quote(str(checkpoint.with_name(names[to])))
    return {
        "kNN accuracy on labeled images": f"{program} knn {file} --data DIR",
        "Linear classifier on labeled images": f"{program} linear {file} --data DIR --out {linear}",
        "The network for other programs": f"{program} export {file} --to {to} --out {export}",
    }
