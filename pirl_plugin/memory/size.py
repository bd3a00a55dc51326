"""How large a memory bank is, by arithmetic."""

from __future__ import annotations

_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def bank_bytes(images: int, ranks: int, placement: str, dim: int, dtype: str) -> int:
    """Bytes of the bank that a rank holds: its rows, and a byte for each row that says visited.

    Args:
        images: |D|.
        ranks: W.
        placement: ``replicated`` or ``sharded``; the shard is that of the first rank.
        dim: D.
        dtype: of the rows: ``float32``, ``bfloat16`` or ``float16``.

    Example:
        >>> bank_bytes(1_281_167, 32, "replicated", 128, "float32") / 1e6
        657.238671
    """
    rows = images if placement == "replicated" else -(-images // ranks)
    return rows * (dim * _ELEMENT_BYTES[dtype] + 1)
