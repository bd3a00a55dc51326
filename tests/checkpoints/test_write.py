"""Only finite state is saved."""

import pytest
import torch

from pirl_plugin.checkpoints import write
from pirl_plugin.checkpoints.write import NonFiniteStateError, check_finite


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_check__names_the_tensors_that_are_not_finite(bad, dtype):
    weights = torch.zeros(3, 5, dtype=dtype)
    state = {"trunk": [{"weight": weights}, torch.ones(2)], "steps": torch.arange(4)}
    check_finite(state, "file")
    weights[2, 3] = bad
    with pytest.raises(NonFiniteStateError, match=r"^file was not saved: .*\(trunk\.0\.weight\)"):
        check_finite(state, "file")


def test_check__lets_the_constant_be_unknown():
    check_finite({"loss": {"norm_constant": torch.tensor(float("nan"))}}, "file")


@pytest.mark.parametrize("position", [0, 3, 6])
def test_check__looks_at_every_block(position, monkeypatch):
    monkeypatch.setattr(write, "_BLOCK", 3)
    weights = torch.zeros(7)  # two blocks, and one of a single element
    weights[position] = float("nan")
    with pytest.raises(NonFiniteStateError, match=r"\(weight\)"):
        check_finite({"weight": weights}, "file")
