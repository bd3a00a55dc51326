"""``bash extra_scripts/gpu_check.sh``: every CUDA path on the GPU at hand, part by part."""
