"""The memory bank: its rows, the draw of negatives, and sums over the drawn rows (Sec. 2.2)."""

from pirl_plugin.memory.bank import MemoryBank
from pirl_plugin.memory.negatives import Draw, draw_negatives
from pirl_plugin.memory.scores import bank_scores
from pirl_plugin.memory.sharded import ShardedMemoryBank

__all__ = ["Draw", "MemoryBank", "ShardedMemoryBank", "bank_scores", "draw_negatives"]
