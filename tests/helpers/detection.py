"""A network that is small enough to be detected with on a CPU."""

WIDTH = 0.25  # of ResNet-50, and what makes Detectron2 build the same
NARROW = [
    *("MODEL.RESNETS.STEM_OUT_CHANNELS", "16"),
    *("MODEL.RESNETS.RES2_OUT_CHANNELS", "64"),
    *("MODEL.RESNETS.WIDTH_PER_GROUP", "16"),
]
SMALL = [*NARROW, "INPUT.MIN_SIZE_TRAIN", "(64,)", "INPUT.MIN_SIZE_TEST", "64"]
