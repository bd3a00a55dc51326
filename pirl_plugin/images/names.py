"""Every registered name of data, once; reading them imports no torch."""

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
DISK_SHARDS = "pirl_disk_shards"

_SOURCES = "pirl_plugin.images.sources"
SOURCES = {
    DISK_FOLDER: f"{_SOURCES}.folder:FolderSource",
    DISK_FILELIST: f"{_SOURCES}.filelist:FileListSource",
    DISK_VOC07: f"{_SOURCES}.voc07:VOC07Source",
    DISK_INATURALIST18: f"{_SOURCES}.inaturalist18:INaturalist18Source",
    DISK_SHARDS: f"{_SOURCES}.shards:ShardSource",
}
"""Data source -> its class, ``module:attribute``."""

SETTINGS_FILE = "prepare.json"
"""What ``pirl-plugin prepare`` notes in the folder that it writes."""
