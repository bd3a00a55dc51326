"""Photos for the scripts that compare methods."""

import pytest

from tests.helpers.images import save_gray


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Create 20 training and 4 test images in each of two classes that differ in brightness."""
    folder = tmp_path_factory.mktemp("photos")
    for split, count in (("train", 20), ("val", 4)):
        for number in range(count):
            for label, level in (("dark", number), ("light", 200 + number)):
                save_gray(folder / split / label / f"{number}.png", level, (40, 40))
    return folder
