"""Run an example with ResNet-10 as torchvision's resnet18: a network that the host has, too.

python -m tests.helpers.resnet10 EXAMPLE ARGUMENTS
"""

from __future__ import annotations

import runpy
import sys

import torch
import torchvision.models

from pirl_plugin.models.resnet import WideResNet


def resnet10() -> WideResNet:
    """A ResNet-10 with 512 features before ``fc``, as resnet18 has them.

    Its weights are channels-last as in the host's run: other kernels round otherwise.
    """
    return WideResNet(10, 1, small_stem=False).to(memory_format=torch.channels_last)


if __name__ == "__main__":
    torchvision.models.resnet18 = resnet10
    sys.argv[:] = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
