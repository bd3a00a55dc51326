"""Replacements for imports in VISSL that current packages lack."""

import inspect
import sys
import types
import warnings
from pathlib import Path

import pytest
import torch

from pirl_plugin.vissl.repairs import environment as patch
from pirl_plugin.vissl.repairs import environment as stub
from pirl_plugin.vissl.repairs.environment import silence_host_warnings


def test_kinetics400__is_an_alias_if_removed_from_torchvision(monkeypatch):
    from torchvision.datasets import kinetics

    monkeypatch.delattr(kinetics, "Kinetics400", raising=False)
    patch.alias_kinetics400(None)
    assert kinetics.Kinetics400 is kinetics.Kinetics
    theirs = type("Kinetics400", (), {})
    monkeypatch.setattr(kinetics, "Kinetics400", theirs)
    patch.alias_kinetics400(None)
    assert kinetics.Kinetics400 is theirs


def test_pkg_resources__is_available_while_host_imports_it(monkeypatch):
    import vissl

    monkeypatch.delitem(sys.modules, "pkg_resources", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", _without("pkg_resources"))
    stub.provide_pkg_resources(None)
    stand_in = sys.modules["pkg_resources"]
    catalog = Path(stand_in.resource_filename("configs", "config/dataset_catalog.json"))
    # beside VISSL, even if other packages are named configs
    assert catalog.parents[2] == Path(vissl.__file__).parents[1]
    assert torch.__version__.startswith(stand_in.get_distribution("torch").version)
    stub.withdraw_pkg_resources(None)
    assert "pkg_resources" not in sys.modules


def test_pkg_resources__from_older_setuptools_is_kept(monkeypatch):
    theirs = types.ModuleType("pkg_resources")
    monkeypatch.setitem(sys.modules, "pkg_resources", theirs)
    stub.provide_pkg_resources(None)
    stub.withdraw_pkg_resources(None)
    assert sys.modules["pkg_resources"] is theirs


def _without(name):
    import importlib.util

    find = importlib.util.find_spec
    return lambda asked, *rest: None if asked == name else find(asked, *rest)


def test_host_gpu_warnings__are_silenced():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FutureWarning):
            torch.cuda.amp.GradScaler(enabled=False)
        silence_host_warnings(None)
        torch.cuda.amp.GradScaler(enabled=False)
        torch.cuda.amp.autocast(enabled=False)
        if torch.__version__ >= "2.10":  # as TorchVersion; earlier ones do not warn
            barrier = inspect.getsource(torch.distributed.barrier)
            assert "barrier(): using the device under current context" in barrier
        warnings.warn("barrier(): using the device under current context. You can …", stacklevel=1)
        with pytest.raises(UserWarning, match="of a user"):
            warnings.warn("of a user", stacklevel=1)
