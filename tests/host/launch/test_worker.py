"""What ranks load before the host does."""

import pytest
from vissl.config import AttrDict

from pirl_plugin.host.launch.worker import uses_our_sources


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"TRAIN": {"DATA_SOURCES": ["pirl_disk_folder"]}}, True),
        ({"TRAIN": {"DATA_SOURCES": ["disk_folder"]}, "TEST": {"DATA_SOURCES": []}}, False),
        ({"TEST": {"DATA_SOURCES": ["pirl_disk_filelist"]}}, True),
        ({}, False),
    ],
)
def test_kernels__are_preloaded_for_our_sources_only(data, expected):
    assert uses_our_sources(AttrDict({"DATA": data})) is expected
