"""Numbers in float32 or wider."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(values: Tensor) -> Tensor:
    """``values`` in float32, or as they are if they are wider."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
