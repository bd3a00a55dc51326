"""Bytes shared with loader workers: what is opened for them is closed."""

import os
import warnings

import pytest

from pirl_plugin.images.shared_bytes import SharedBytes


def test_shared_bytes__close_what_they_opened():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        block = SharedBytes(8)
        array, descriptor = block.array, block._descriptor
        array[3] = 7
        del block
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert not [one for one in seen if one.category is ResourceWarning]
    assert array.tolist() == [0, 0, 0, 7, 0, 0, 0, 0]  # mapped as long as it is used
