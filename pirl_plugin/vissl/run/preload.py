"""Modules for the fork server of a run, which imports them once for all loader workers."""

# ruff: noqa: E402, F401
import atexit
import gc

gc.disable()  # faster imports

import vissl.utils.distributed_launcher  # it imports all of VISSL

import pirl_plugin.vissl.adapters.dataset
import pirl_plugin.vissl.adapters.images
from pirl_plugin.views.base import warm_up

warm_up()  # compiled once for all workers
gc.freeze()  # imported objects stay, and share their memory with the workers
gc.enable()
atexit.register(gc.unfreeze)  # as in the launcher: otherwise Triton reports leaks
