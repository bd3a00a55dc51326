"""Open the door to the host before any test imports it, as an installed ``.pth`` would."""

import torch

from pirl_plugin.host import door

door.install()
torch.set_num_threads(1)  # small tensors; the suite runs beside the ranks that it spawns
