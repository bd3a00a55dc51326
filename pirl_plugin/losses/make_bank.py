"""The memory bank that ``LOSS.pirl_loss`` describes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pirl_plugin.distributed import rank
from pirl_plugin.memory import MemoryBank, ShardedMemoryBank

if TYPE_CHECKING:
    from pirl_plugin.losses.config import PIRLLossConfig

_NCE_SHARE = 0.1  # negatives of the images; the paper has 0.025
_TRIAL = 100  # negatives; a run of fewer is to see that it runs
_BANKS: dict[str, type[MemoryBank]] = {"replicated": MemoryBank, "sharded": ShardedMemoryBank}


def make_bank(config: PIRLLossConfig, seed: int, placement: str | None = None) -> MemoryBank:
    """Make the bank of a configuration. More negatives than images are warned of, not refused.

    Args:
        config: the section.
        seed: of its initial rows.
        placement: in place of the section's.

    Raises:
        ValueError: there are too few rows for it, or for negatives without replacement.
    """
    if config.num_train_samples < 0:
        raise ValueError(
            f"LOSS.pirl_loss.num_train_samples = {config.num_train_samples}: expected the number "
            f"of training images, which the host fills in; give it, as len(dataset)"
        )
    bank = _BANKS[placement or config.bank.placement](
        config.num_train_samples,
        config.embedding_dim,
        momentum=config.bank.momentum,
        dtype=config.bank.dtype,
        seed=seed,
    )
    if isinstance(bank, ShardedMemoryBank) and not config.replacement:
        most = bank.smallest_shard - 1
        if config.num_negatives > most:
            raise ValueError(
                f"LOSS.pirl_loss.num_negatives = {config.num_negatives}: expected at most {most} "
                f"without replacement from the smallest shard's {most + 1} rows; lower it, or set "
                f"replacement: true"
            )
    share = config.num_negatives / config.num_train_samples
    if share > 1 and rank() == 0:
        logging.root.warning(
            f"LOSS.pirl_loss.num_negatives = {config.num_negatives} with "
            f"{config.num_train_samples} images: rows are drawn more than once for an image; fewer "
            f"negatives take less time"
        )
    many = share > _NCE_SHARE and config.num_negatives >= _TRIAL
    if config.estimator == "nce" and many and rank() == 0:
        logging.root.warning(
            f"LOSS.pirl_loss.estimator = nce with {config.num_negatives} negatives of "
            f"{config.num_train_samples} images: its noise term outweighs so few images (the paper "
            f"has 2.5 %); take info_nce, with a temperature such as 0.2, or fewer negatives"
        )
    return bank
