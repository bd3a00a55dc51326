"""How views are computed: numba kernels, and PIL as their oracle."""
