"""Which hooks a run has, and in which order."""

import pytest

from pirl_plugin.vissl.run.launch import launch_distributed
from pirl_plugin.vissl.run.pirl_task import hooks_of_run
from tests.helpers.configs import compose


@pytest.fixture
def hooks_of(tmp_path):
    """Return the names of a run's hooks; VISSL creates the run's folder."""
    from vissl.hooks import default_hook_generator

    def names(*overrides):
        config = compose(*overrides, f"config.CHECKPOINT.DIR={tmp_path}")
        assert config.TRAINER.TASK_NAME == "pirl_task"
        hooks = hooks_of_run(default_hook_generator, config)
        return [type(hook).__name__ for hook in hooks]

    return names


def test_hooks__are_added_for_our_loss_and_tests(hooks_of):
    ours = ["MemoryBankHook", "MonitorHook"]
    hooks = hooks_of("config=pretrain/pirl/quick_jigsaw")
    assert hooks[:3] == ["ExchangeHook", *ours]
    # Ours replaces VISSL's saving hook, and follows the hook that sizes the bank.
    assert hooks.count("CheckpointHook") == 1
    assert not {"LogLossMetricsCheckpointHook", "CheckNanModelOutputHook"} & set(hooks)
    # A covariant baseline: our uint8 views with a VISSL loss.
    hooks = hooks_of("config=pretrain/pirl/jigsaw_baseline_8node")
    assert hooks[0] == "ExchangeHook"
    assert "CheckpointHook" in hooks
    assert not set(ours) & set(hooks)
    assert "TestedHook" not in hooks
    assert "TestedHook" in hooks_of("config=benchmark/pirl/quick_linear")


def test_task_and_hooks__are_the_hosts_for_other_approaches():
    config = compose("config=pretrain/simclr/simclr_8node_resnet")
    assert config.TRAINER.TASK_NAME == "self_supervision_task"
    launched = []
    launch_distributed(
        config, 2, "train", "host_hooks", original=lambda *arguments: launched.append(arguments)
    )
    assert launched == [(config, 2, "train", "host_hooks")]
