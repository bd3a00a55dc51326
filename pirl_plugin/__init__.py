"""PIRL (Misra & van der Maaten, CVPR 2020, arXiv 1912.01991) as a plugin for VISSL.

Importing this package costs milliseconds and imports neither torch nor VISSL. What it adds to the
host, and where, is one table: :mod:`pirl_plugin.host.table`.
"""

__version__ = "0.1.0"
