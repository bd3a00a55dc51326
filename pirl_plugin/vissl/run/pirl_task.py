"""VISSL's task for runs with this plugin, and their hooks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from classy_vision.tasks import register_task
from torch import nn
from vissl import data as host_data
from vissl.trainer.train_task import SelfSupervisionTask

from pirl_plugin.models.trunks import feature_width
from pirl_plugin.system.loader import Batches, start_training_worker
from pirl_plugin.system.ranks import rank
from pirl_plugin.vissl.adapters.dataset import PIRLDataset, open_datasets
from pirl_plugin.vissl.adapters.images import pirl_collator
from pirl_plugin.vissl.adapters.method import PIRLTimm
from pirl_plugin.vissl.adapters.model_input import prepare_model
from pirl_plugin.vissl.adapters.run_images import identify_images, set_images, show_images
from pirl_plugin.vissl.adapters.weights import load_initial_weights
from pirl_plugin.vissl.hooks.memory_bank import MemoryBankHook
from pirl_plugin.vissl.hooks.monitor import MonitorHook, TestedHook
from pirl_plugin.vissl.hooks.progress import ProgressHook, shows_progress
from pirl_plugin.vissl.resume import position
from pirl_plugin.vissl.resume.exchange import ExchangeHook
from pirl_plugin.vissl.resume.hook import CheckpointHook
from pirl_plugin.vissl.resume.record import global_batch
from pirl_plugin.vissl.sections import MonitorSettings, RunSettings, read_section

if TYPE_CHECKING:
    from classy_vision.hooks import ClassyHook
    from vissl.config import AttrDict

    from pirl_plugin.models.network_config import NetworkConfig


@register_task("pirl_task")
class PIRLTask(SelfSupervisionTask):
    """The task ``pirl_task``, which reads weights and labels safely, and resumes exactly.

    The module ``compose`` selects it for runs with this plugin; VISSL's own approaches keep VISSL's
    task.

    Attributes:
        images: the record of the images that the network gets; set with the data sets.
    """

    images: NetworkConfig

    def build_datasets(
        self, current_train_phase_idx: int = 0
    ) -> tuple[dict[str, PIRLDataset], dict[str, Any]]:
        """Return split → data set, and the names of the inputs and targets in a batch."""
        section = self.config.DATA[self.available_splits[-1]]
        keys = {"input": section.INPUT_KEY_NAMES, "target": section.TARGET_KEY_NAMES}
        return self._datasets, keys

    @functools.cached_property
    def _datasets(self) -> dict[str, PIRLDataset]:
        """The data sets, which are opened before the network is built: it needs their channels."""
        datasets = open_datasets(self.config, self.available_splits)
        first = datasets["train" if "train" in datasets else "test"]
        found = identify_images(self.config, first.disk.source, self.checkpoint_path)
        self.images = set_images(self.config, found)
        for dataset in datasets.values():
            dataset.read_as(self.images)
        if rank() == 0:
            show_images(self.images, first)
        return datasets

    def build_dataloaders(
        self, pin_memory: bool, current_train_phase_idx: int = 0
    ) -> dict[str, _WatchedLoader]:
        """Return split → loader.

        The training loader can skip finished batches; feature extraction reads every image. Workers
        ignore signals.
        """
        extracts = self.config.MODEL.FEATURE_EVAL_SETTINGS.EXTRACT_TRUNK_FEATURES_ONLY
        start = functools.partial(
            start_training_worker, host_data.set_dataloader_seeds, self.device.type == "cpu"
        )
        loaders = {}
        for split in self.available_splits:
            sampler = host_data.get_sampler
            if split == "TRAIN" and not extracts:
                sampler = position.resuming_sampler
            loader = host_data.build_dataloader(
                dataset=self.datasets[split.lower()],
                dataset_config=self.config.DATA[split],
                num_dataloader_workers=self.config.DATA.NUM_DATALOADER_WORKERS,
                pin_memory=pin_memory,
                multi_processing_method=self.config.MULTI_PROCESSING_METHOD,
                device=self.device,
                sampler_seed=self.config.SEED_VALUE,
                get_sampler=sampler,
                worker_init_fn=start,
                split=split.lower(),
            )
            loaders[split.lower()] = _WatchedLoader(loader)
        return loaders

    def _build_model(self, *args: Any, **kwargs: Any) -> nn.Module:
        """Build the model, and prepare it before DistributedDataParallel wraps it."""
        train = self._datasets.get("train")  # opened first: they set the trunk's input channels
        model: nn.Module = super()._build_model(*args, **kwargs)
        trunk = getattr(model, "trunk", None)
        if isinstance(trunk, PIRLTimm) and train is not None:  # a ResNet takes any size
            check_views(trunk, train)
        prepare_model(model, self.config, self.device, self.images.pixel_type.dtype)
        return model

    def _restore_model_weights(self, model: Any, **options: Any) -> Any:
        """Load the initial weights from a file in any layout."""
        return load_initial_weights(self.config, model, **options)

    def _compute_start_iter_from_checkpoint(self, phase_type: str) -> int:
        """Return how many steps in the current epoch are done.

        VISSL counts steps in the stopped run's batches, and passes them only to samplers with
        ``set_start_iter``, which torch's ``DistributedSampler`` lacks.
        """
        return position.steps_done(self, phase_type)

    def _update_classy_state(self, state_dict: Mapping[str, Any] | None = None) -> PIRLTask:
        """Load a checkpoint's state, and find the position in the schedule.

        VISSL would log an error and raise an AssertionError without the cause.
        """
        if state_dict is not None:
            self._set_classy_state(state_dict)
            if self.train:
                position.restore_schedule_position(self)
        return self


def check_views(trunk: nn.Module, data: Sequence[dict[str, Any]]) -> None:
    """Check that a trunk can process this plugin's views, before the memory bank is filled.

    Args:
        trunk: the trunk, on the CPU.
        data: the training images.

    Raises:
        Refused: it cannot process a view.
    """
    sample = data[0]
    if isinstance(sample["data"], dict):  # not a list, from other transforms
        views = pirl_collator([sample, sample])
        feature_width(
            trunk, {name: view.float() for name, (view,) in views.items() if view.ndim == 4}
        )


class _WatchedLoader:
    """A loader with a limit on how long to wait for a batch; otherwise like the loader.

    Args:
        loader: a ``DataLoader``, or VISSL's wrapper of one.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Batches:
        return Batches(self._loader, self._loader.dataset.disk.source.waiting)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def hooks_of_run(
    hook_generator: Callable[[AttrDict], Sequence[ClassyHook]], config: AttrDict
) -> list[ClassyHook]:
    """Return our hooks and VISSL's, in the order in which VISSL calls them.

    Args:
        hook_generator: returns VISSL's hooks for a configuration.
        config: VISSL's complete configuration.
    """
    run = read_section(RunSettings, config, "HOOKS.PIRL_RUN")
    monitor = read_section(MonitorSettings, config, "HOOKS.PIRL_MONITOR")
    exchange = ExchangeHook(run.max_unreadable)
    host: dict[str, Any] = {}
    for hook in hook_generator(config):
        host[type(hook).__name__] = hook
    tensorboard = getattr(host.get("SSLTensorboardHook"), "tb_writer", None)
    json_lines = getattr(host.get("LogLossLrEtaHook"), "json_stdout_logger", None)
    # Our checkpoint hook replaces VISSL's. VISSL's hook for NaN would save the broken model.
    host["LogLossMetricsCheckpointHook"] = CheckpointHook(config, exchange)
    host.pop("CheckNanModelOutputHook", None)

    has_bank = config.LOSS.name == "pirl_loss"
    # The hook that stops a faulty run comes before hooks that would act on the fault.
    hooks: list[ClassyHook] = [exchange]
    if config.TEST_MODEL:
        hooks.append(TestedHook())
    if has_bank:
        hooks.append(MemoryBankHook(exchange))
        hooks.append(MonitorHook(config.LOG_FREQUENCY, monitor, tensorboard, json_lines))
    # The hook that saves comes after the one that sets the bank's size.
    hooks += host.values()
    if shows_progress() and rank() == 0:
        export_to = None
        if has_bank:
            export_to = "timm" if config.MODEL.TRUNK.NAME == "pirl_timm" else "torchvision"
        hooks.append(ProgressHook(global_batch(config), export_to))
    return hooks
