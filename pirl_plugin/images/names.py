"""Registered names of transforms and data sources; does not import torch."""

JIGSAW = "PIRLJigsaw"
ROTATION = "PIRLRotation"
ROTATION_JIGSAW = "PIRLRotationJigsaw"
IMAGE = "PIRLImage"
PREDICT_JIGSAW = "PredictJigsaw"
PREDICT_ROTATION = "PredictRotation"
OWN = "PIRLOwn"

TRANSFORMS = (JIGSAW, ROTATION, ROTATION_JIGSAW, IMAGE, PREDICT_JIGSAW, PREDICT_ROTATION, OWN)
"""Each is a class in :mod:`pirl_plugin.vissl.adapters.images`."""

DISK_FOLDER = "pirl_disk_folder"
DISK_FILELIST = "pirl_disk_filelist"
DISK_VOC07 = "pirl_disk_voc07"
DISK_INATURALIST18 = "pirl_disk_inaturalist18"
DISK_SHARDS = "pirl_disk_shards"
DISK_HF = "pirl_disk_hf"

SOURCES = (DISK_FOLDER, DISK_FILELIST, DISK_VOC07, DISK_INATURALIST18, DISK_SHARDS, DISK_HF)
"""Each is opened by :func:`pirl_plugin.images.opening.open_named`."""

TABLES = (".csv", ".tsv", ".jsonl")
"""File name endings for image lists with columns."""
LISTS = (".txt", *TABLES, ".npy")
"""File name endings for image lists."""
