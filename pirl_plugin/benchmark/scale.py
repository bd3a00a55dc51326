"""Memory and communication of a rank, by arithmetic: how the bank grows with data and ranks.

The tests compare these formulas with what 1 to 4 processes hold and send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pirl_plugin.memory.size import bank_bytes

if TYPE_CHECKING:
    import argparse

_ROW_NUMBER, _FLOAT = 8, 4  # bytes of an int64, and of a float32, in which embeddings travel
_DIM = 128


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Print the table; returns ``{"rows": [...]}``."""
    rows = [
        {
            "images": images,
            "ranks": ranks,
            "placement": placement,
            "bank_bytes": bank_bytes(images, ranks, placement, _DIM, options.dtype),
            "step_bytes": step_bytes(ranks, options.batch, placement),
            "work_bytes": work_bytes(ranks, options.batch, placement),
        }
        for images in options.rows
        for placement in ("replicated", "sharded")
        for ranks in options.ranks
    ]
    table = [
        {
            "images": f"{row['images']:,}",
            "bank": row["placement"],
            "ranks": row["ranks"],
            "bank, GB a rank": row["bank_bytes"] / 1e9,
            "received, MB a step and rank": row["step_bytes"] / 1e6,
            "at work, MB a rank": row["work_bytes"] / 1e6,
        }
        for row in rows
    ]
    print(tabulate(table, "keys", ".3g"))
    return {"rows": rows}


def step_bytes(ranks: int, batch: int, placement: str, dim: int = _DIM) -> int:
    """Bytes that a rank receives for loss and bank in a step, beside a few numbers.

    Replicated: row numbers and f(v_I) of all others, for the update. Sharded, where the images of
    all ranks are spread evenly over the shards: twice a message length from each rank, and row
    numbers and f(v_I) for the update, row numbers asked for and the own rows.
    """
    row = _ROW_NUMBER + dim * _FLOAT
    if placement == "replicated":
        return (ranks - 1) * batch * row
    return 2 * (ranks - 1) * _ROW_NUMBER + 2 * (ranks - 1) * batch * row // ranks


def work_bytes(ranks: int, batch: int, placement: str) -> int:
    """Most bytes that the bank's update takes at once: four float64 copies of its embeddings.

    An upper bound for the embeddings of all ranks, or, sharded, for a rank's share of them: as they
    are received (half a copy) and in the arithmetic (2.6 copies). On a CPU, a process's resident
    memory may show up to nine, as the C library keeps what was freed: not with
    ``MALLOC_MMAP_THRESHOLD_=1000000`` in the environment. The loss itself holds megabytes, whatever
    these numbers are: ``pirl-plugin benchmark loss``.
    """
    return 4 * 8 * (ranks if placement == "replicated" else 1) * batch * _DIM
