"""The front door: how the parts of this package get into an unmodified VISSL.

Only the standard library is imported here until VISSL itself is. Read in this order:
:mod:`~pirl_plugin.host.table` (what is put where), :mod:`~pirl_plugin.host.door` (how),
:mod:`~pirl_plugin.host.mends` (what today's Python and torch broke in the host).
"""
