"""A model with the outputs that the loss expects, small enough to compare across processes."""

import torch
from torch import nn

DIM = 8


class TwoHeads(nn.Module):
    """Compute g and f, both ``(B, DIM)``, from ``(B, 6)``; every process has the same weights."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.g, self.f = nn.Linear(6, DIM), nn.Linear(6, DIM)

    def forward(self, images):
        return [self.g(images), self.f(images)]
