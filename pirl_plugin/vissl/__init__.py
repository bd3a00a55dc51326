"""The host: register the parts of this package in an unmodified VISSL.

Before VISSL is imported, only the standard library is imported here. Read in this order:
:mod:`~pirl_plugin.vissl.import_hook.table` (what is registered where),
:mod:`~pirl_plugin.vissl.import_hook.finder` (how), :mod:`~pirl_plugin.vissl.repairs` (patches of
host code that today's Python and torch broke).
"""

from pirl_plugin.vissl.import_hook import finder

finder.install()  # before any module of this package imports the host
