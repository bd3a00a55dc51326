"""Imported once by multiprocessing's fork server, so that data-loader workers start at once."""

from pirl_plugin.host import door

door.install()

import vissl.utils.distributed_launcher  # noqa: E402, F401  (the launcher imports all of the host)

import pirl_plugin.data.source  # noqa: E402
import pirl_plugin.data.transforms  # noqa: E402, F401
from pirl_plugin.data.kernel import warm_up  # noqa: E402

warm_up()  # compiled once for all workers, which inherit it
