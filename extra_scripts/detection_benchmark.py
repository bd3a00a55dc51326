#!/usr/bin/env python
"""Faster R-CNN on VOC or COCO from a checkpoint, through Detectron2.

python extra_scripts/detection_benchmark.py --config voc07_pirl --weights OUT.pkl --data DIR \
    [--num-gpus 8] [--trials 5]
"""

import sys

from pirl_plugin.detection.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
