"""What this plugin adds to VISSL's modules; ``run/pirl_task.py`` has the hooks.

The tables contain only strings, so that nothing is imported before VISSL's module.
``package.module:attribute`` names a class or function. A step is a function that takes the module.
"""

from pirl_plugin.images.names import SOURCES, TRANSFORMS

# VISSL module whose import completes a registry -> (the registry, our parts by their YAML names).
# Losses and transforms are in Classy Vision's registries.
PARTS: dict[str, tuple[str, dict[str, str]]] = {
    "vissl.losses": (
        "classy_vision.losses:LOSS_REGISTRY",
        {"pirl_loss": "pirl_plugin.vissl.adapters.method:VISSLPIRLLoss"},
    ),
    "vissl.models.heads": (
        "vissl.models.heads:MODEL_HEADS_REGISTRY",
        {
            "pirl_head": "pirl_plugin.vissl.adapters.method:VISSLPIRLHead",
        },
    ),
    "vissl.models.trunks": (
        "vissl.models.trunks:MODEL_TRUNKS_REGISTRY",
        {
            "pirl_resnet": "pirl_plugin.vissl.adapters.method:PIRLResNet",
            "pirl_timm": "pirl_plugin.vissl.adapters.method:PIRLTimm",
            "pirl_ensemble": "pirl_plugin.vissl.adapters.method:PIRLEnsemble",
        },
    ),
    "vissl.models.trunks.feature_extractor": (
        "vissl.models.trunks.feature_extractor:POOL_OPS",
        {"PIRLAvgPool2d": "pirl_plugin.models.trunks:GridAvgPool2d"},
    ),
    "vissl.data.collators": (
        "vissl.data.collators:COLLATOR_REGISTRY",
        {"pirl_collator": "pirl_plugin.vissl.adapters.images:pirl_collator"},
    ),
    "vissl.data.ssl_transforms": (
        "classy_vision.dataset.transforms:TRANSFORM_REGISTRY",
        {name: f"pirl_plugin.vissl.adapters.images:{name}" for name in TRANSFORMS},
    ),
    "vissl.data": (
        "vissl.data:DATASET_SOURCE_MAP",
        dict.fromkeys(SOURCES, "pirl_plugin.vissl.adapters.images:PIRLDiskDataset"),
    ),
}

# VISSL module -> other lists that need the names of our parts, besides the registry.
NAMED: dict[str, str] = {
    # Sources that DATA_LIMIT applies to.
    "vissl.data": "vissl.data:DATA_SOURCES_WITH_SUBSET_SUPPORT.update",
    # Transforms that get the complete sample: pixels, row and validity.
    "vissl.data.ssl_transforms": (
        "vissl.data.ssl_transforms.ssl_transforms_wrapper"
        ":_TRANSFORMS_WITH_OVERWRITE_ENTIRE_BATCH.extend"
    ),
}

_REPAIRS = "pirl_plugin.vissl.repairs"

# Steps before a VISSL module's body.
BEFORE: dict[str, tuple[str, ...]] = {
    "vissl": (f"{_REPAIRS}.environment:silence_host_warnings",),
    "classy_vision": (f"{_REPAIRS}.environment:silence_host_warnings",),
    "classy_vision.dataset.classy_kinetics400": (f"{_REPAIRS}.environment:alias_kinetics400",),
    "vissl.utils.misc": (f"{_REPAIRS}.environment:provide_pkg_resources",),
    "vissl.utils.collect_env": (f"{_REPAIRS}.environment:provide_pkg_resources",),
}

# Steps after a VISSL module's body.
AFTER: dict[str, tuple[str, ...]] = {
    "vissl.utils.misc": (f"{_REPAIRS}.environment:withdraw_pkg_resources",),
    "vissl.utils.collect_env": (f"{_REPAIRS}.environment:withdraw_pkg_resources",),
}

# VISSL module -> functions and methods that ours replace. Ours takes the same arguments, and the
# replaced function as ``original``.
REPLACED: dict[str, dict[str, str]] = {
    "classy_vision.dataset.dataloader_async_gpu_wrapper": {
        "DataloaderAsyncGPUWrapper.preload": f"{_REPAIRS}.transfers:copy_after_last_step",
    },
    "vissl.data.dataset_catalog": {
        "get_data_files": f"{_REPAIRS}.environment:allow_paths_without_labels",
    },
    "vissl.meters.accuracy_list_meter": {
        "AccuracyListMeter.update": f"{_REPAIRS}.labels:count_labeled_images",
    },
    "vissl.trainer.trainer_main": {
        "SelfSupervisionTrainer.extract": f"{_REPAIRS}.svm:extract_features_on_cpu",
    },
    "vissl.utils.checkpoint": {
        "load_and_broadcast_checkpoint": f"{_REPAIRS}.transfers:load_on_each_rank",
        "save_checkpoint": f"{_REPAIRS}.transfers:save_atomically",
        "create_file_symlink": f"{_REPAIRS}.transfers:link_newest",
    },
    "vissl.utils.io": {
        "load_file": f"{_REPAIRS}.svm:refuse_missing_average_precision",
    },
    "vissl.utils.profiler": {
        "is_nvtx_available": f"{_REPAIRS}.environment:find_nvtx",
    },
    "vissl.utils.svm_utils.evaluate": {
        "get_precision_recall": f"{_REPAIRS}.svm:compute_average_precision",
    },
    "vissl.utils.logger": {
        "setup_logging": "pirl_plugin.vissl.hooks.progress:hide_log_behind_progress",
    },
    "vissl.utils.hydra_config": {
        "compose_hydra_configuration": "pirl_plugin.vissl.run.compose:compose_completely",
        "convert_to_attrdict": "pirl_plugin.vissl.run.compose:convert_and_record",
    },
    "vissl.utils.distributed_launcher": {
        "launch_distributed": "pirl_plugin.vissl.run.launch:launch_distributed",
    },
}
