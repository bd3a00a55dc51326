"""The registered names of transforms and data sources; this module does not import torch."""

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

DISK_FOLDER = "pirl_disk_folder"
DISK_FILELIST = "pirl_disk_filelist"
DISK_VOC07 = "pirl_disk_voc07"
DISK_INATURALIST18 = "pirl_disk_inaturalist18"
DISK_SHARDS = "pirl_disk_shards"
DISK_HF = "pirl_disk_hf"

SOURCES = {
    DISK_FOLDER: "pirl_plugin.images.sources:FolderSource",
    DISK_FILELIST: "pirl_plugin.images.filelist:FileListSource",
    DISK_VOC07: "pirl_plugin.images.datasets:VOC07Source",
    DISK_INATURALIST18: "pirl_plugin.images.datasets:INaturalist18Source",
    DISK_SHARDS: "pirl_plugin.images.shards:ShardSource",
    DISK_HF: "pirl_plugin.images.datasets:HuggingFaceSource",
}
"""Data source -> its class, ``module:attribute``."""

INDEX = "index.npz"
"""File of ``prepare --shards`` with the index of the images in a folder's tars."""
