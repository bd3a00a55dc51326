"""The registered names of transforms and data sources; this module does not import torch."""

JIGSAW = "PIRLJigsaw"
ROTATION = "PIRLRotation"
ROTATION_JIGSAW = "PIRLRotationJigsaw"
IMAGE = "PIRLImage"
PREDICT_JIGSAW = "PredictJigsaw"
PREDICT_ROTATION = "PredictRotation"

VIEWS = {
    JIGSAW: "pirl_plugin.views.jigsaw:JigsawViews",
    ROTATION: "pirl_plugin.views.rotation:RotationViews",
    ROTATION_JIGSAW: "pirl_plugin.views.jigsaw:RotationJigsawViews",
    IMAGE: "pirl_plugin.views.base:ImageViews",
    PREDICT_JIGSAW: "pirl_plugin.views.jigsaw:JigsawTask",
    PREDICT_ROTATION: "pirl_plugin.views.rotation:RotationTask",
}
"""Transform -> its class, ``module:attribute``."""

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
