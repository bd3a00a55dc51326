"""What a run of this plugin refuses to save."""

import re

import pytest
import torch

from pirl_plugin.checkpoints.run_folder import Keep, RunFolder
from pirl_plugin.checkpoints.saver import Saver
from pirl_plugin.checkpoints.write import NonFiniteStateError

NAME = "model_phase0.torch"


@pytest.fixture
def saver(tmp_path):
    return Saver(RunFolder(tmp_path, Keep()), lambda inside: {})


def state():
    """What the host is about to save, each part with one tensor."""
    return {
        "base_model": {"weight": torch.ones(2)},
        "optimizer": {"optim": {"momentum": torch.ones(2)}},
        "loss": {"bank.rows": torch.ones(2)},
    }


def content_of(parts):
    classy = {key: parts[key] for key in ("base_model", "optimizer")}
    return {"classy_state_dict": classy, "loss": parts["loss"], "iteration": 5}


def test_saver__takes_finite_state(saver):
    assert saver.prepare(content_of(state()), NAME)
    assert saver.folder.writing == [NAME]


@pytest.mark.parametrize(
    ("part", "name"),
    [("base_model", "weight"), ("optimizer", "optim.momentum"), ("loss", "bank.rows")],
)
def test_saver__refuses_nan_in_each_part(saver, part, name):
    parts = state()
    one = parts[part]["optim"] if part == "optimizer" else parts[part]
    one[name.removeprefix("optim.")][1] = torch.nan
    with pytest.raises(NonFiniteStateError, match=re.escape(f"in 1 tensors ({name})")):
        saver.prepare(content_of(parts), NAME)
    assert saver.folder.writing == []
