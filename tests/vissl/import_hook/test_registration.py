"""What the table lists is in the host's registries, once, and never over someone else."""

import importlib
from pkgutil import resolve_name

import pytest

from pirl_plugin.vissl.import_hook.registration import register_parts
from pirl_plugin.vissl.import_hook.table import PARTS
from tests.helpers.configs import compose


@pytest.mark.parametrize("module", PARTS)
def test_parts__are_registered_and_registering_again_changes_nothing(module):
    host = importlib.import_module(module)
    where, parts = PARTS[module]
    before = dict(resolve_name(where))
    register_parts(host)
    assert resolve_name(where) == before
    assert {name: resolve_name(part) for name, part in parts.items()}.items() <= before.items()


def test_transforms__get_the_whole_sample_and_sources_take_data_limit():
    import vissl.data
    from vissl.data.ssl_transforms import ssl_transforms_wrapper as wrapper

    whole = wrapper.DEFAULT_TRANSFORM_TYPES["TRANSFORMS_WITH_OVERWRITE_ENTIRE_BATCH"]
    for name in PARTS["vissl.data.ssl_transforms"][1]:
        assert whole.count(name) == 1
    assert set(PARTS["vissl.data"][1]) <= vissl.data.DATA_SOURCES_WITH_SUBSET_SUPPORT


@pytest.fixture
def hooks_of(tmp_path):
    """The names of a run's hooks; the host makes the run's folder."""
    from vissl.hooks import default_hook_generator

    def names(*overrides):
        config = compose(*overrides, f"config.CHECKPOINT.DIR={tmp_path}")
        return [type(hook).__name__ for hook in default_hook_generator(config)]

    return names


def test_hooks__are_added_for_our_loss_and_the_input_hook_where_asked_for(hooks_of):
    faults = ["ExchangeHook", "PIRLInputHook", "FiniteHook"]
    ours = ["MemoryBankHook", "PIRLReportHook", "MonitorHook"]
    hooks = hooks_of("config=pretrain/pirl/quick_jigsaw")
    assert hooks[:6] == [*faults[:2], ours[0], faults[2], *ours[1:]]
    # Ours is the host's hook that saves, and follows the hook that sets the bank's size.
    assert hooks.count("CheckpointHook") == 1
    assert not {"LogLossMetricsCheckpointHook", "CheckNanModelOutputHook"} & set(hooks)
    # A covariant baseline: our uint8 views, a loss of the host's.
    hooks = hooks_of("config=pretrain/pirl/jigsaw_baseline_8node")
    assert hooks[:3] == faults
    assert "CheckpointHook" in hooks
    assert not set(ours) & set(hooks)


def test_hooks__of_other_approaches_are_the_hosts(hooks_of):
    hooks = hooks_of("config=pretrain/simclr/simclr_8node_resnet")
    assert {"LogLossMetricsCheckpointHook", "CheckNanModelOutputHook"} < set(hooks)
    assert not {"ExchangeHook", "CheckpointHook"} & set(hooks)
