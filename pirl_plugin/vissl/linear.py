"""``pirl-plugin linear``: the host's linear benchmark on a checkpoint, in one command."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pirl_plugin import arguments as kinds
from pirl_plugin.settings import quoted, require_host

if TYPE_CHECKING:
    from pirl_plugin.models.trunks import AnyTrunk

# (depth, width) -> the overlay with the pooling of this network's layers, as in the paper's App. C.
_OVERLAYS = {
    (18, 1): "resnet18",
    (50, 1): "resnet50",
    (50, 2): "resnet50_c2x",
    (50, 4): "resnet50_c4x",
}


def main(arguments: list[str]) -> int:
    """Run the benchmark in this process, and print the top-1 of each layer."""
    options = _parse(arguments)
    require_host()
    import torch

    from pirl_plugin.checkpoints.load import load_trunk, save_trunk
    from pirl_plugin.evaluation.features import labelled_folders
    from pirl_plugin.evaluation.linear_run import linear_accuracy
    from pirl_plugin.vissl import launch

    train, test, classes = labelled_folders(options.data)
    trunk = load_trunk(options.checkpoint, **kinds.trunk_options(options))
    trunk.preprocessing = trunk.preprocessing.with_options(options.size, options.mean, options.std)
    print(f"images of {trunk.preprocessing}", flush=True)
    weights = options.checkpoint
    if options.trunk or options.timm or options.trust_pickle:
        weights = options.out / "trunk.torch"
        save_trunk(trunk, weights)
    overrides = [
        *benchmark_of(trunk),
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(train)}]",
        f"config.DATA.TEST.DATA_PATHS=[{quoted(test)}]",
        f"config.MODEL.HEAD.NUM_CLASSES={len(classes)}",
        f"config.METERS.accuracy_list_meter.topk_values={[1, 5] if len(classes) >= 5 else [1]}",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={quoted(weights)}",
        f"config.CHECKPOINT.DIR={quoted(options.out)}",
    ]
    if not any("pirl/machines=" in override for override in options.overrides):
        machine = "1gpu" if torch.cuda.is_available() else "cpu"
        overrides.insert(1, f"+config/pirl/machines={machine}")
    status = launch.main([*overrides, *options.overrides])
    if status == 0:
        print("Linear top-1, percent:")
        for layer, top1 in linear_accuracy(options.out).items():
            print(f"  {layer:8}{top1:6.2f}")
    return status


def benchmark_of(trunk: AnyTrunk) -> list[str]:
    """Return the overrides of the benchmark that fits a trunk and its images.

    For the paper's networks and ResNet-18, it measures five layers, as in the paper's Table 2. For
    others, such as the narrow network of ``quick_jigsaw``, it measures only the pooled features.
    """
    from pirl_plugin.models.resnet import ResNetTrunk, feature_width

    images = trunk.preprocessing
    sizes = [
        f"config.DATA.TRAIN.CROP_SIZE={images.size}",
        f"config.DATA.TEST.RESIZE={round(images.size * 8 / 7)}",
        f"config.DATA.MEAN={list(images.mean)}",
        f"config.DATA.STD={list(images.std)}",
    ]
    full = "config=benchmark/pirl/linear_imagenet1k"
    given: dict[str, Any] = dict(trunk.arguments)
    if not isinstance(trunk, ResNetTrunk):
        key = "config.MODEL.TRUNK.PIRL_TIMM"
        options = [f"+{key}.OPTIONS.{name}={value}" for name, value in given["options"].items()]
        named = f"{key}.NAME={given['architecture']}"
        return [full, "+config/pirl/linear=timm", named, *options, *sizes]
    depth, width, small = (given[name] for name in ("depth", "width", "small_stem"))
    if (depth, width) in _OVERLAYS and not small:
        return [full, f"+config/pirl/linear={_OVERLAYS[depth, width]}", *sizes]
    key = "config.MODEL.TRUNK.PIRL_RESNET"
    return [
        "config=benchmark/pirl/quick_linear",
        *(f"{key}.DEPTH={depth}", f"{key}.WIDTH_MULTIPLIER={width}", f"{key}.SMALL_STEM={small}"),
        f"config.MODEL.HEAD.IN_DIM={feature_width(depth, width)}",
        *sizes,
    ]


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin linear",
        description="Train linear classifiers on a checkpoint's frozen features, with VISSL's "
        "benchmark.\nExample: "
        "pirl-plugin linear --checkpoint runs/mine/checkpoint.torch --data DIR",
        formatter_class=kinds.HelpFormatter,
    )
    kinds.add_checkpoint_options(parser)
    kinds.add_image_options(parser)
    add = parser.add_argument
    add("--data", type=kinds.user_path, required=True, help="folder of train/CLASS/*, val/CLASS/*")
    add("--out", type=kinds.output_folder, default="runs/linear", help="folder of the run")
    add("overrides", nargs="*", metavar="KEY=VALUE", help="overrides, as in pirl-plugin train")
    return parser.parse_args(arguments)
