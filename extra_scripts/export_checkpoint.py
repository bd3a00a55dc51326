#!/usr/bin/env python
"""Write the ResNet trunk of a checkpoint for Detectron2, torchvision or timm.

python extra_scripts/export_checkpoint.py IN OUT --to detectron2|torchvision|safetensors
"""

import sys

from pirl_plugin.checkpoints.export import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
