"""Settings for :class:`pirl_plugin.PIRLLoss`, by default the paper's, and its saved state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.method.estimators import ESTIMATORS
from pirl_plugin.system.failures import Refused, check, check_name


@dataclass
class BankConfig:
    """Memory bank settings: see :class:`pirl_plugin.method.bank.MemoryBank`.

    Raises:
        ValueError: a value has the wrong type or is out of range.
    """

    momentum: float = 0.5  # m in row ← normalize(m·row + (1 − m)·f(v_I))
    placement: str = "replicated"  # or sharded: each rank holds 1/W of the rows
    dtype: str = "float32"  # row dtype; or bfloat16, float16
    init: str = "random"  # or embeddings: a pass before training sets rows to f(v_I)
    seed: int | None = None  # None: VISSL's SEED_VALUE, or 0 without VISSL

    def __post_init__(self) -> None:
        check_name("bank.placement", self.placement, ("replicated", "sharded"))
        check_name("bank.init", self.init, ("random", "embeddings"))


@dataclass
class PIRLLossConfig:
    """Loss settings: see :class:`pirl_plugin.PIRLLoss`.

    Raises:
        ValueError: a value has the wrong type or is out of range.
    """

    num_train_samples: int = -1  # |D|, number of images; −1: set by VISSL
    estimator: Any = "nce"  # nce, nce_softmax, info_nce, or a function of scores
    lambda_invariance: float = 0.5  # λ, weight for the transformed term; 0 is NPID
    temperature: float = 0.07  # τ
    num_negatives: int | None = 32000  # N, per image; None: half of |D|, at most 4,096
    negatives: str = "per_image"  # or per_batch, one draw shared by the batch
    replacement: bool = True  # whether a row may be drawn twice for an image
    norm_constant: float | None = None  # Z; None: estimated from the first batch
    norm_constant_momentum: float = 1.0  # m; below 1: Z ← m·Z + (1 − m)·Z_batch
    term_weights: list[float] | None = None  # one per output; None: from lambda_invariance
    embedding_dim: int = 128  # embedding width
    bank: BankConfig = field(default_factory=BankConfig)

    def __post_init__(self) -> None:
        if not callable(self.estimator):
            check_name("estimator", self.estimator, ESTIMATORS)
        for name in ("lambda_invariance", "norm_constant_momentum"):
            weight = getattr(self, name)
            check(name, weight, 0 <= weight <= 1, "a weight in [0, 1]")
        # Below 1/709, exp(1/τ) overflows in float64.
        fits = self.temperature >= 1.5e-3
        check("temperature", self.temperature, fits, "a number of at least 0.0015")
        number = self.num_negatives
        check("num_negatives", number, number is None or number >= 1, "at least 1, or None")
        check_name("negatives", self.negatives, ("per_image", "per_batch"))
        z = self.norm_constant
        check("norm_constant", z, z is None or z > 0, "a positive number, or None")
        weights = self.term_weights
        if weights is not None:
            fits = min(weights, default=0) >= 0 and sum(weights) > 0
            check("term_weights", weights, fits, "non-negative weights, at least one above 0")

    def weights(self, num_outputs: int) -> list[float]:
        """Return one weight per output: Eq. 5's, or ``term_weights``.

        Transformed versions share λ equally. The image is last, with 1 − λ.

        Raises:
            ValueError: ``term_weights`` has another length, or there is no transformed version and
                λ is not 0.
        """
        if self.term_weights is not None:
            fits = len(self.term_weights) == num_outputs
            expected = f"{num_outputs} weights, one per output"
            check("term_weights", self.term_weights, fits, expected)
            return list(self.term_weights)
        weight = self.lambda_invariance
        num_transformed = num_outputs - 1
        if num_transformed == 0:
            check("lambda_invariance", weight, weight == 0, "0 (NPID) if g_transformed is None")
            return [1.0]
        return [weight / num_transformed] * num_transformed + [1 - weight]


def pack_state(state: Mapping[str, Any], length: int) -> Tensor:
    """Return plain values as JSON in a uint8 tensor ``(length,)``.

    Programs that average, copy or save a ``state_dict`` expect tensors whose shape stays the same.
    """
    text = json.dumps(state).encode().ljust(length)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def unpack_state(state: Tensor | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values in a packed state; in earlier checkpoints, it is a dictionary.

    Raises:
        Refused: the tensor holds no JSON.
    """
    if not isinstance(state, Tensor):
        return state
    try:
        values: Mapping[str, Any] = json.loads(bytes(state.to(torch.uint8).tolist()))
    except ValueError:
        raise Refused(
            "The loss's state in the checkpoint is damaged, or an average of several. Load only "
            "the trunk, with load_trunk."
        ) from None
    return values
