"""What the paper fixes for each row of its tables, key by key, and what may differ.

A run belongs to a row if every key of its configuration that is not in ``FREE`` has the value
given here. A key that is in neither table counts as different. The values are those that the
configs of this package compose to: where the paper gives a value it is the paper's (Sec. 2.3, 3, 4,
App. A and C); where it is silent (batch of the linear models, Nesterov momentum, BatchNorm's
constants, all of the baselines' pre-training) it is the one that our config documents.

Precision is fixed. The published models were trained in float32, so a run with ``autocast``, the
host's AMP or a bank in bfloat16 has a row of its own, in which its effect can be seen.
"""
