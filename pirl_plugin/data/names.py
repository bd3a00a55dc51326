"""The registered names of this room, kept apart so that reading them imports no torch."""

JIGSAW = "PIRLJigsaw"
ROTATION = "PIRLRotation"
ROTATION_JIGSAW = "PIRLRotationJigsaw"

PIRL_TRANSFORMS = frozenset({JIGSAW, ROTATION, ROTATION_JIGSAW})
"""Transforms that take a decoded ``SourceImage`` instead of a PIL image."""

DISK_FOLDER = "pirl_disk_folder"
DISK_FILELIST = "pirl_disk_filelist"
DISK_VOC07 = "pirl_disk_voc07"
DISK_INATURALIST18 = "pirl_disk_inaturalist18"
COLLATOR = "pirl_collator"
