"""What ranks load before the host does."""

import os
import subprocess
import sys

import pytest
from vissl.config import AttrDict

from pirl_plugin.utils.processes import RANK_PROCESS
from pirl_plugin.vissl.launch.worker import uses_our_sources

preload_watch = "pirl_plugin.vissl.launch.preload_watch"


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


@pytest.mark.parametrize(("parent", "status"), [(1, 0), (2, 1)])
def test_fork_server__ends_if_its_parent_is_not_the_rank(parent, status):
    """In a container the rank itself may be process 1, which was taken for what adopts orphans."""
    code = f"import os; os.getppid = lambda: {parent}; import {preload_watch}"
    environment = {**os.environ, RANK_PROCESS: "1"}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == status
