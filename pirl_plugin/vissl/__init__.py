"""The host: how the parts of this package get into an unmodified VISSL.

Only the standard library is imported here until VISSL itself is. Read in this order:
:mod:`~pirl_plugin.vissl.import_hook.table` (what is registered where),
:mod:`~pirl_plugin.vissl.import_hook.finder` (how), :mod:`~pirl_plugin.vissl.patches` (what today's
Python and torch broke in the host, and its repair).
"""
