"""A file's content, if it is a regular file of a sane size."""

import os
import stat

MAX_FILE_BYTES = 2**29
"""The largest file that is read as an image: 0.5 GiB."""


def read_file(path: str) -> bytearray:
    """Read a file whole, without ever waiting for one that is not a regular file.

    Args:
        path: of the file; a link is followed.

    Returns:
        Its content.

    Raises:
        OSError: it cannot be opened; or it is a pipe, a device, a socket or a folder; or it is
            larger than ``MAX_FILE_BYTES``.
        ValueError: ``path`` holds a NUL byte.
    """
    # Without O_NONBLOCK, opening a pipe waits for someone to write to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file (a pipe, a device, a socket or a folder)")
        if status.st_size > MAX_FILE_BYTES:
            raise OSError(
                f"the file has {status.st_size / 2**20:,.0f} MiB, more than the "
                f"{MAX_FILE_BYTES / 2**20:,.0f} that are read"
            )
        content = bytearray(status.st_size)
        filled = 0
        with memoryview(content) as view:
            while filled < len(content):
                count = os.readv(descriptor, [view[filled:]])
                if not count:
                    break
                filled += count
    finally:
        os.close(descriptor)
    del content[filled:]
    return content
