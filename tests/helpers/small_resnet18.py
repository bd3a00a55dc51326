"""Run an example with a small network as torchvision's resnet18: seconds, not minutes, on a CPU.

python -m tests.helpers.small_resnet18 EXAMPLE ARGUMENTS
"""

from __future__ import annotations

import runpy
import sys
from collections import OrderedDict

import torchvision.models
from torch import nn


def small_resnet18() -> nn.Sequential:
    """A network with 512 features before ``fc``, as resnet18 has them, and batch norm."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(3, 512, kernel_size=8, stride=8, bias=False),
            bn1=nn.BatchNorm2d(512),
            relu=nn.ReLU(),
            avgpool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(512, 1000),
        )
    )


if __name__ == "__main__":
    torchvision.models.resnet18 = small_resnet18
    sys.argv[:] = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
