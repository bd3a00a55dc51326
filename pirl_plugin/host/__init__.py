"""The host: how the parts of this package get into an unmodified VISSL.

Only the standard library is imported here until VISSL itself is. Read in this order:
:mod:`~pirl_plugin.host.import_hook.table` (what is registered where),
:mod:`~pirl_plugin.host.import_hook.finder` (how), :mod:`~pirl_plugin.host.compat` (what today's
Python and torch broke in the host, and its repair).
"""
