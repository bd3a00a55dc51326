"""Imported by the fork server of a run on our data sources, after :mod:`.preload`."""

import pirl_plugin.data.sources.vissl_source
import pirl_plugin.data.vissl_transforms  # noqa: F401
from pirl_plugin.data.kernels.render import warm_up

warm_up()  # compiled once for all workers, which inherit it
