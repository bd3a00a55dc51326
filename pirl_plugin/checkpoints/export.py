"""Write the trunk in any checkpoint for other programs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from pirl_plugin.checkpoints import FORMATS
from pirl_plugin.checkpoints.classifier import read_classifier
from pirl_plugin.checkpoints.formats import WRITERS, detectron2_options
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.models.network_config import RESNET
from pirl_plugin.models.resnet import LAST
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import Refused, check_name


def export_checkpoint(
    path: str | Path,
    out: str | Path,
    to: str,
    *,
    trunk: str | None = None,
    timm: str | None = None,
    timm_options: Mapping[str, object] | None = None,
    features_only: bool = False,
) -> AnyTrunk:
    """Write the trunk in a checkpoint for Detectron2, torchvision, timm, VISSL or ONNX.

    Weights keep their values, in float32. Files for VISSL and folders for timm also record which
    images the network expects. A classifier from ``finetune`` or ``linear`` is written too: in an
    ONNX file, which maps images to probabilities, and for VISSL; for torchvision, timm and
    safetensors, if it reads the pooled features. Class names are written for timm (``label_names``)
    and as metadata ``classes`` in safetensors and ONNX files. An existing file at ``out`` is
    replaced at the end, in one step.

    Args:
        path: any file that :func:`pirl_plugin.load_trunk` loads.
        out: the file to write: ``.pkl`` for Detectron2, ``.pth`` for torchvision, ``.torch`` for
            VISSL, ``.safetensors``, ``.onnx``; for timm a folder, which gets ``config.json`` and
            ``model.safetensors``.
        to: ``detectron2``, ``torchvision``, ``vissl``, ``safetensors`` with timm's names, ``timm``
            or ``onnx``.
        trunk: prefix of the trunk's tensors, or its last part, if the file holds several networks.
        timm: as in :func:`pirl_plugin.load_trunk`, like ``timm_options``.
        timm_options: keyword arguments for ``timm.create_model``.
        features_only: leave out the classifier.

    Returns:
        The trunk; :func:`loading_lines` returns the code that loads the exported file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: ``to`` is unknown, the file cannot be read, the other program lacks the network
            or a place for the classifier, or tensors are missing, left over, of another shape or
            not finite; the message names them.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from torchvision.models import resnet18
        >>> folder = tempfile.TemporaryDirectory()
        >>> torch.save(resnet18().state_dict(), f"{folder.name}/in.pth")
        >>> trunk = export_checkpoint(f"{folder.name}/in.pth", f"{folder.name}/out.torch", "vissl")
        >>> trunk.network_config.name
        'ResNet-18'
        >>> folder.cleanup()
    """
    path = Path(path)
    out = Path(out)
    # Refuse before the checkpoint is read, which may take minutes.
    check_name("to", to, FORMATS)
    if out.exists() and path.exists() and out.samefile(path):
        raise Refused(f"{out} is the checkpoint itself. Choose another output file.")
    exported = load_trunk(path, prefix=trunk, timm=timm, timm_options=timm_options)
    classifier = None if features_only else read_classifier(path)
    if classifier is not None and to not in ("onnx", "vissl"):
        if classifier.layer != LAST or to == "detectron2":
            raise Refused(
                f"{path} has a classifier on the layer {classifier.layer}, which {to} has no place "
                f"for. Export to onnx, or pass `features_only` to leave the classifier out."
            )
    WRITERS[to](exported, out, classifier)
    return exported


def loading_lines(trunk: AnyTrunk, to: str, out: Path, classes: int = 0) -> str:
    """Return Python code that loads an exported file, or an override for VISSL.

    Args:
        trunk: the exported trunk.
        to: the format.
        out: the file, or timm's folder.
        classes: number of classes; 0 if the network was written without a classifier.
    """
    config = trunk.network_config
    file = str(out)
    if to == "vissl":
        return shlex.quote(f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={out.absolute()}")
    if to == "detectron2":
        options_and_weights = {"MODEL.WEIGHTS": file, **detectron2_options(trunk)}
        return f"config.merge_from_list({[*chain.from_iterable(options_and_weights.items())]})"
    if to == "onnx":
        return (
            f"session = onnxruntime.InferenceSession({file!r})\n"
            f"(output,) = session.run(None, {{'images': images}})  # (B, C, H, W)"
        )
    if to == "timm":
        name = f"local-dir:{out}"
        return f"model = timm.create_model({name!r}, pretrained=True, num_classes={classes})"
    # A file with tensors: the lines also build the network.
    options = [f"{key}={value!r}" for key, value in config.options.items()]
    arguments = [repr(config.architecture), f"num_classes={classes}", *options]
    model = f"timm.create_model({', '.join(arguments)})"
    if config.architecture == RESNET:
        last = f"Linear({trunk.num_features}, {classes})" if classes else "Identity()"
        model = f"pirl_plugin.WideResNet({', '.join(options)})"
        if config.timm_name and config.channels == 3:  # the same name in torchvision
            model = f"torchvision.models.{config.timm_name}()"
        model = f"{model}\nmodel.fc = torch.nn.{last}"
    load = f"torch.load({file!r}, weights_only=True)"
    if to == "safetensors":
        load = f"safetensors.torch.load_file({file!r})"
    return f"model = {model}\nmodel.load_state_dict({load})"
