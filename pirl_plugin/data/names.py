"""The registered names of this room, kept apart so that reading them imports no torch."""

JIGSAW = "PIRLJigsaw"
ROTATION = "PIRLRotation"
ROTATION_JIGSAW = "PIRLRotationJigsaw"
IMAGE = "PIRLImage"
PREDICT_JIGSAW = "PredictJigsaw"
PREDICT_ROTATION = "PredictRotation"

VIEWS = {
    JIGSAW: ("images", "patches"),
    ROTATION: ("images", "rotated"),
    ROTATION_JIGSAW: ("images", "patches"),
    IMAGE: ("images",),
    PREDICT_JIGSAW: ("patches",),
    PREDICT_ROTATION: ("rotated",),
}
"""Transform -> the views that it makes."""

PIRL_TRANSFORMS = frozenset(VIEWS)
"""Transforms that take a decoded ``SourceImage`` instead of a PIL image."""

DISK_FOLDER = "pirl_disk_folder"
DISK_FILELIST = "pirl_disk_filelist"
DISK_VOC07 = "pirl_disk_voc07"
DISK_INATURALIST18 = "pirl_disk_inaturalist18"
COLLATOR = "pirl_collator"
