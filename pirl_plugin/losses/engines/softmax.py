"""Statistics of a softmax over drawn rows, computed in parts and joined."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_TINY = 1e-30


class Softmax(NamedTuple):
    """Softmax statistics of the drawn rows' scores, the largest apart: its h may round to 1.

    Attributes:
        top: ``(T, B)``, the largest score.
        top_index: ``(T, B)`` int64, which of the N it is.
        top_row: ``(T, B, D)``, its row.
        second: ``(T, B)``, the largest of the others; −inf where there are none.
        rest: ``(T, B)``, Σ exp(s_k − second) over the others.
        rest_sum: ``(T, B, D)``, Σ exp(s_k − second)·m_k over the others.
    """

    top: Tensor
    top_index: Tensor
    top_row: Tensor
    second: Tensor
    rest: Tensor
    rest_sum: Tensor

    def log_rest(self) -> Tensor:
        """``(T, B)``, log Σ exp s_k over all but the largest."""
        return self.second + torch.log(self.rest)

    def log_sum(self) -> Tensor:
        """``(T, B)``, log Σ exp s_k."""
        return torch.logaddexp(self.top, self.log_rest())

    def with_positive(self, positive: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Take the positive into the softmax.

        Args:
            positive: ``(T, B)``, its score.

        Returns:
            Five tensors ``(T, B)``: log Σ exp s over all; the same over all but the largest
            negative; and h of the positive, of the largest negative and of the other negatives.
        """
        log_rest = self.log_rest()
        log_others = torch.logaddexp(positive, log_rest)
        log_total = torch.logaddexp(log_others, self.top)
        h_positive, h_top, h_rest = (
            torch.exp(score - log_total) for score in (positive, self.top, log_rest)
        )
        return log_total, log_others, h_positive, h_top, h_rest

    def rest_mean(self) -> Tensor:
        """``(T, B, D)``, mean of the other rows with softmax weights; 0 where there are none."""
        return self.rest_sum / self.rest.clamp(min=_TINY)[..., None]


def join(parts: Softmax) -> Softmax:
    """Join statistics of several sets of rows, stacked along a first dimension of all tensors.

    What is the top of a part becomes one of the rest where another part has a larger one. An empty
    part has a top and a second of −inf.
    """
    top, winner = parts.top.max(dim=0, keepdim=True)
    beaten = parts.top.scatter(0, winner, -torch.inf)
    second = torch.maximum(beaten, parts.second).amax(dim=0)
    zero = second.nan_to_num(neginf=0)  # of which −inf can be subtracted
    scale, beaten_scale = torch.exp(parts.second - zero), torch.exp(beaten - zero)
    rest = (parts.rest * scale + beaten_scale).sum(dim=0)
    rest_sum = torch.einsum("stb,stbd->tbd", scale, parts.rest_sum)
    rest_sum += torch.einsum("stb,stbd->tbd", beaten_scale, parts.top_row)
    top_index = parts.top_index.gather(0, winner)[0]
    dim = parts.top_row.shape[-1]
    top_row = parts.top_row.gather(0, winner[..., None].expand(-1, -1, -1, dim))[0]
    return Softmax(top[0], top_index, top_row, second, rest, rest_sum)
