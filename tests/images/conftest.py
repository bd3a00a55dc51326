"""Fixtures shared by the image tests."""

import pytest

from pirl_plugin.system.console import warn_once
from tests.helpers.images import save_gray


@pytest.fixture
def folder(tmp_path):
    """Create two classes of one image each."""
    save_gray(tmp_path / "a" / "1.png", 1)
    save_gray(tmp_path / "b" / "2.png", 2)
    return tmp_path


@pytest.fixture
def animals(tmp_path, make_image):
    """Create two classes of two images, and a file that is not an image."""
    for number, name in enumerate(["cat/0.png", "cat/1.jpg", "dog/2.png", "dog/3.png"]):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        make_image(path, number)
    (tmp_path / "data" / "dog" / "4.jpg").write_bytes(b"no image")
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def _each_test_warns():
    warn_once.cache_clear()
