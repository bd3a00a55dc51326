"""From a checkpoint to AP on VOC and COCO, through Detectron2 (Sec. 3.1 and the appendix)."""
