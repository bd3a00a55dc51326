"""A folder with what real folders hold."""

import pytest

from tests.helpers.images import save_grey


@pytest.fixture
def folder(tmp_path):
    names = ["b/2.PNG", "b/1.jpg", "a/z/3.jpeg", "a/y/9.bmp", "a/x.webp", "ä é/1.png"]
    for level, name in enumerate(names):
        save_grey(tmp_path / name, 10 * level)
    (tmp_path / "a" / "notes.txt").write_text("not an image")
    (tmp_path / "empty").mkdir()
    save_grey(tmp_path / ".hidden" / "1.png")
    save_grey(tmp_path / "a" / ".1.png")
    return tmp_path
