"""Imported by the fork server of a run on our data sources, after :mod:`.preload`."""

import pirl_plugin.vissl.adapters.source
import pirl_plugin.vissl.adapters.transforms  # noqa: F401
from pirl_plugin.views.kernels.render import warm_up

warm_up()  # compiled once for all workers, which inherit it
