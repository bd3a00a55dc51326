"""Where in an epoch a resumed run begins."""

from types import SimpleNamespace

import pytest

from pirl_plugin.checkpoints.host_checkpoint import PLUGIN_SECTION
from pirl_plugin.vissl.hooks.resume import samples_done


@pytest.mark.parametrize(
    ("section", "name", "phase", "expected"),
    [
        ({"samples_done": 24}, "model_iteration13.torch", 1, 24),
        ({"samples_done": 24}, "model_iteration13.torch", 2, 0),  # epochs after the first
        ({"samples_done": 0}, "model_phase0.torch", 1, 0),
        ({"samples_done": 96}, "model_iteration13.torch", 1, 80),  # its last batch was filled up
        (None, "model_iteration13.torch", 1, 3 * 8),  # older: 13 steps are 10 and 3
        (None, "model_phase0.torch", 1, 0),
    ],
)
def test_samples_done__are_of_the_epoch_that_goes_on(tmp_path, section, name, phase, expected):
    checkpoint = {"train_phase_idx": 0, "iteration": 13}
    if section is not None:
        checkpoint[PLUGIN_SECTION] = section
    task = SimpleNamespace(
        checkpoint=checkpoint,
        checkpoint_path=str(tmp_path / name),
        train_phase_idx=phase,
        dataloaders={"train": range(10)},
        datasets={"train": SimpleNamespace(get_global_batchsize=lambda: 8)},
    )
    assert samples_done(task) == expected
