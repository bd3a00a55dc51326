"""VISSL's own loss over a memory bank, as its PIRL config sets it up, to compare with."""

from __future__ import annotations

from typing import Any


def vissl_loss(
    num_rows: int, dim: int, num_negatives: int, norm_constant: float, loss_type: str = "nce"
) -> Any:
    """Its ``NCELossWithMemory`` on two heads, each with weight 0.5, the bank fed by the second."""
    from vissl.config import AttrDict
    from vissl.losses.nce_loss import NCELossWithMemory

    memory = {
        "memory_size": num_rows,
        "embedding_dim": dim,
        "momentum": 0.5,
        "norm_init": True,
        "update_mem_on_forward": False,
    }
    config = {
        "norm_embedding": True,
        "temperature": 0.07,
        "loss_weights": [0.5, 0.5],
        "norm_constant": norm_constant,
        "loss_type": loss_type,
        "update_mem_with_emb_index": 1,
        "negative_sampling_params": {"num_negatives": num_negatives, "type": "random"},
        "memory_params": memory,
        "num_train_samples": num_rows,
    }
    return NCELossWithMemory(AttrDict(config))
