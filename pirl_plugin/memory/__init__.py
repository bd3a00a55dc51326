"""The memory bank: its rows, replicated or sharded, and the draw of negatives (Sec. 2.2)."""

from pirl_plugin.memory.bank import MemoryBank
from pirl_plugin.memory.negatives import Draw, draw_negatives
from pirl_plugin.memory.sharded import ShardedMemoryBank

__all__ = ["Draw", "MemoryBank", "ShardedMemoryBank", "draw_negatives"]
