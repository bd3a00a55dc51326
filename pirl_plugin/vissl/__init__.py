"""Register the parts of this package in VISSL, which stays unmodified.

Before VISSL is imported, this package imports only the standard library. Read in this order:
:mod:`~pirl_plugin.vissl.import_hook.table` (what is registered where),
:mod:`~pirl_plugin.vissl.import_hook.finder` (how), :mod:`~pirl_plugin.vissl.repairs` (patches that
VISSL needs with current Python and torch).
"""

from pirl_plugin.vissl.import_hook import finder

finder.install()  # before any module in this package imports VISSL
