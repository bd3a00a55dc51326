"""What the table lists is in the host's registries, once, and never over someone else."""

import importlib
from pkgutil import resolve_name

import pytest

from pirl_plugin.vissl.import_hook.registration import register_parts
from pirl_plugin.vissl.import_hook.table import PARTS


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


def test_hooks__are_added_for_our_loss_and_the_input_hook_where_asked_for():
    from vissl.config import AttrDict
    from vissl.hooks import add_loss_hooks

    def added(loss, **hooks):
        train = {"TRANSFORMS": [], "BATCHSIZE_PER_REPLICA": 4}
        sections = {"LOSS": {"name": loss}, "HOOKS": hooks, "CHECKPOINT": {}}
        config = AttrDict({**sections, "DATA": {"TRAIN": train}})
        return [type(hook).__name__ for hook in add_loss_hooks([], config.LOSS, config)]

    assert added("pirl_loss") == [
        "ExchangeHook",
        "PIRLInputHook",
        "MemoryBankHook",
        "FiniteHook",
        "PIRLReportHook",
        "MonitorHook",
        "CheckpointHook",
    ]
    assert added("moco_loss_of_others") == []
    # A covariant baseline: our uint8 views, a loss of the host's.
    hooks = added("cross_entropy", PIRL_INPUT={"autocast": None})
    assert hooks == ["ExchangeHook", "PIRLInputHook", "FiniteHook", "CheckpointHook"]
