"""The first lines of a run of ours, and a console without the host's log, which a file keeps."""

from __future__ import annotations

import functools
import logging
import sys
from typing import TYPE_CHECKING

from pirl_plugin.checkpoints.training_run import learning_rates
from pirl_plugin.losses.config import PIRLLossConfig
from pirl_plugin.utils.console import LINE, counted, show_page, shows_page
from pirl_plugin.utils.our_configs import is_ours, num_micro_batches

if TYPE_CHECKING:
    from vissl.config import AttrDict

    from pirl_plugin.vissl.host_module import HostModule

# Beginnings of the host's messages that matter to whoever started the run: where it begins, and the
# results of its SVM tools, which they write to the log alone.
_SHOWN = (
    "The run in ",
    "Resume from file",
    "Loading checkpoint from",
    "AP for various layers",
    "k-value: ",
)
# Warnings that say again what the page says.
_KNOWN = ("Selecting a CPU device",)


def page_of_our_runs(module: HostModule) -> None:
    """Wrap ``setup_logging``: where a page is shown, the host's log goes to ``log.txt`` alone."""
    original = module.setup_logging

    @functools.wraps(original)
    def setup_logging(name: str, *args: object, **kwargs: object) -> object:
        made = original(name, *args, **kwargs)
        if shows_page():
            for handler in logging.getLogger(name).handlers:
                if type(handler) is logging.StreamHandler and handler.stream is sys.stdout:
                    _put_on_page(handler)
        return made

    module.setup_logging = setup_logging


def page_of_this_process() -> None:
    """Have warnings look as those of a run, in a process that sets up no log of the host's."""
    show_page()
    if not shows_page():
        return
    root = logging.root
    if not root.handlers:
        root.addHandler(logging.StreamHandler(sys.stdout))
    for handler in root.handlers:
        if type(handler) is logging.StreamHandler:
            _put_on_page(handler)


def _put_on_page(handler: logging.Handler) -> None:
    handler.addFilter(_for_a_page)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))


def _for_a_page(record: logging.LogRecord) -> bool:
    """Let warnings pass, what says where a run begins, and results that no hook of ours shows."""
    text = str(record.msg)
    warns = record.levelno >= logging.WARNING and not text.startswith(_KNOWN)
    passes = warns or text.startswith(_SHOWN)
    if passes:
        LINE.close()
    return passes


def start_page(config: AttrDict, banner: str) -> str:
    """What is about to run, on one page; of other configurations than ours, the banner alone.

    Args:
        config: the host's, inferred.
        banner: versions, and how much was patched for them.
    """
    if not is_ours(config):
        return banner
    show_page()
    if not shows_page():
        return banner
    rows = {
        "data": _data(config),
        "model": _model(config),
        "loss": _loss(config),
        "batch": _batch(config),
        "logs": f"{config.CHECKPOINT.DIR}: log.txt (all), stdout.json (loss), checkpoints",
    }
    return "\n".join([banner, *(f"{name:<9} {text}" for name, text in rows.items() if text)])


def _data(config: AttrDict) -> str:
    splits = [] if config.TEST_ONLY else ["TRAIN"]
    splits += ["TEST"] if config.TEST_MODEL else []
    return "; ".join(
        f"{split.lower()} {', '.join(map(str, data.DATA_PATHS or data.DATASET_NAMES))} "
        f"({', '.join(transform['name'] for transform in data.TRANSFORMS)})"
        for split in splits
        for data in (config.DATA[split],)
    )


def _model(config: AttrDict) -> str:
    trunk = config.MODEL.TRUNK
    heads = [
        head[0] if isinstance(head[0], str) else head[0][0] for head in config.MODEL.HEAD.PARAMS
    ]
    weights = config.MODEL.WEIGHTS_INIT.PARAMS_FILE or "random"
    if trunk.NAME == "pirl_ensemble":
        weights = ", ".join(file or "random" for file in trunk.PIRL_ENSEMBLE.PARAMS_FILES)
    return f"{trunk.NAME}{_size(trunk)}; {', '.join(heads)}; initial weights: {weights}"


def _size(trunk: AttrDict) -> str:
    """What a trunk's own section says of it; nothing of a trunk that is not known here."""
    if trunk.NAME == "resnet":
        return f", depth {trunk.RESNETS.DEPTH} × {trunk.RESNETS.WIDTH_MULTIPLIER}"
    if trunk.NAME == "pirl_resnet":
        from pirl_plugin.models.resnet import read_section

        arguments = read_section(trunk.get("PIRL_RESNET") or {})
        return f", depth {arguments['depth']} × {arguments['width']}"
    if trunk.NAME == "pirl_timm":
        return f", {trunk.PIRL_TIMM.NAME}"
    if trunk.NAME == "pirl_ensemble":
        return f" of {trunk.PIRL_ENSEMBLE.MEMBER}"
    return ""


def _loss(config: AttrDict) -> str:
    if config.LOSS.name != "pirl_loss":
        return str(config.LOSS.name)
    loss = PIRLLossConfig.from_mapping({**config.LOSS.pirl_loss, "num_train_samples": -1})
    return (
        f"{loss.estimator}, N = {loss.num_negatives:,}, τ = {loss.temperature}, "
        f"λ = {loss.lambda_invariance}; bank {loss.bank.placement}, {loss.bank.dtype}"
    )


def _batch(config: AttrDict) -> str:
    machine, rate = config.DISTRIBUTED, config.OPTIMIZER.param_schedulers.lr
    ranks = machine.NUM_NODES * machine.NUM_PROC_PER_NODE
    each = config.DATA.TRAIN.BATCHSIZE_PER_REPLICA
    count = num_micro_batches(config)
    parts = f" in {count} micro-batches of {each // count}" if count > 1 else ""
    return (
        f"{ranks} × {each} = {ranks * each} images{parts} on {config.MACHINE.DEVICE}, "
        f"{counted(config.DATA.NUM_DATALOADER_WORKERS, 'input worker')} each; "
        f"{config.OPTIMIZER.name}, {rate['name']} rate {learning_rates(rate)}, "
        f"{counted(config.OPTIMIZER.num_epochs, 'epoch')}"
    )
