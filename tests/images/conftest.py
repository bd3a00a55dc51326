"""Fixtures shared by the image tests."""

import pytest

from pirl_plugin.images.source import warn_once
from tests.helpers.images import save_gray


@pytest.fixture
def folder(tmp_path):
    """Create two classes of one image each."""
    save_gray(tmp_path / "a" / "1.png", 1)
    save_gray(tmp_path / "b" / "2.png", 2)
    return tmp_path


@pytest.fixture(autouse=True)
def _each_test_warns():
    warn_once.cache_clear()
