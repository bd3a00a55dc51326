"""Statistics of a softmax over drawn rows, gathered in parts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_TINY = 1e-30


class Softmax(NamedTuple):
    """Softmax statistics of the drawn rows' scores, the largest apart: its h may round to 1.

    Attributes:
        top: ``(T, B)``, the largest score.
        place: ``(T, B)`` int64, its place among the N.
        top_row: ``(T, B, D)``, its row.
        rest: ``(T, B)``, Σ exp(s_k − top) over the others.
        rest_sum: ``(T, B, D)``, Σ exp(s_k − top)·m_k over the others.
    """

    top: Tensor
    place: Tensor
    top_row: Tensor
    rest: Tensor
    rest_sum: Tensor

    def log_sum(self) -> Tensor:
        """``(T, B)``, log Σ exp s_k."""
        return self.top + torch.log1p(self.rest)

    def rest_mean(self) -> Tensor:
        """``(T, B, D)``, mean of the other rows with softmax weights; 0 where there are none."""
        return self.rest_sum / self.rest.clamp(min=_TINY)[..., None]


def join(parts: Softmax) -> Softmax:
    """Join statistics of several sets of rows, stacked along a first dimension of all tensors.

    What is the top of a part becomes one of the rest where another part has a larger one. An empty
    part has a top of −inf.
    """
    top, winner = parts.top.max(dim=0, keepdim=True)
    scale = torch.exp(parts.top - top)
    beaten = scale.scatter(0, winner, 0)
    rest = (parts.rest * scale + beaten).sum(dim=0)
    rest_sum = torch.einsum("stb,stbd->tbd", scale, parts.rest_sum)
    rest_sum += torch.einsum("stb,stbd->tbd", beaten, parts.top_row)
    place = parts.place.gather(0, winner)[0]
    dim = parts.top_row.shape[-1]
    top_row = parts.top_row.gather(0, winner[..., None].expand(-1, -1, -1, dim))[0]
    return Softmax(top[0], place, top_row, rest, rest_sum)
