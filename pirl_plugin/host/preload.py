"""Imported once by multiprocessing's fork server, so that data-loader workers start at once."""

from pirl_plugin.host import door

door.install()

import vissl.utils.distributed_launcher  # noqa: E402, F401  (the launcher imports all of the host)
