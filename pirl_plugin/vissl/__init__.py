"""Register the parts of this package in VISSL, the unmodified host.

Before VISSL is imported, only the standard library is imported here. Read in this order:
:mod:`~pirl_plugin.vissl.import_hook.table` (what is registered where),
:mod:`~pirl_plugin.vissl.import_hook.finder` (how), :mod:`~pirl_plugin.vissl.repairs` (patches for
VISSL on current versions of Python and torch).
"""

from pirl_plugin.vissl.import_hook import finder

finder.install()  # before any module of this package imports the host
