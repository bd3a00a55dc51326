"""requirements-library.txt suffices for every public name and for an export."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = {"pillow": "PIL", "pyyaml": "yaml"}  # where the module has another name
HOST_ONLY = (
    "vissl classy_vision hydra omegaconf submitit sklearn scipy fvcore iopath tabulate tensorboard "
    "matplotlib jinja2 timm"
).split()

CODE = f"""
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {HOST_ONLY}:
            return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path if hasattr(finder, "find_spec")]
import pirl_plugin
for name in pirl_plugin.__all__:
    getattr(pirl_plugin, name)
import torch
from torchvision.models import resnet18
torch.save(resnet18().state_dict(), "trunk.pth")
pirl_plugin.export_checkpoint("trunk.pth", "trunk.safetensors", "safetensors")
"""


def test_public_names_and_export__need_nothing_that_only_the_host_needs(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


def test_requirements__are_a_part_of_the_packages():
    lines = (ROOT / "requirements-library.txt").read_text().splitlines()
    names = [re.split("[<>=]", line)[0] for line in lines if line and line[0] != "#"]
    assert not {MODULES.get(name, name) for name in names} & set(HOST_ONLY)
    setup = (ROOT / "setup.py").read_text()
    listed = [line for line in lines if line and not line.startswith(("#", "pyyaml"))]
    assert all(f'"{line}"' in setup for line in listed)  # pyyaml comes with omegaconf there
