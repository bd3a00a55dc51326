"""The parts of VISSL's ``SelfSupervisionTask`` that hooks and our task use.

The task holds a run's state: model, data, loss, optimizer and counters. VISSL 0.1.6 and git main
have no common base class with these attributes, and no type hints. A test compares :class:`Task`
with the task from a real run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from classy_vision.hooks import ClassyHook

if TYPE_CHECKING:
    from torch.amp import GradScaler
    from vissl.config import AttrDict

    from pirl_plugin.models.network_config import NetworkConfig


class QuietHook(ClassyHook):
    """Does nothing at every point in VISSL's loop; subclasses override what they need."""

    on_start = on_phase_start = on_forward = on_loss_and_meter = on_backward = ClassyHook._noop
    on_update = on_step = on_phase_end = on_end = ClassyHook._noop


@runtime_checkable
class Task(Protocol):
    """The parts of VISSL's task that this plugin uses.

    Attributes:
        config: the complete configuration below ``config``.
        device: the model's device.
        datasets: split (``train`` or ``test``) → data set.
        dataloaders: split → loader; ``data_iterator`` iterates over the current one.
        available_splits: the splits in the configuration, in capitals.
        images: the record of the images that the network gets; ours.
        loss: the loss named by ``LOSS.name``.
        losses: per-step losses in this epoch, averaged over ranks.
        meters: the test meters.
        optimizer: VISSL's optimizer, which sets the learning rate.
        amp_grad_scaler: GradScaler for float16, if set in ``MODEL.AMP_PARAMS``.
        last_batch: this rank's ``loss``, the heads' ``model_output`` and the collated ``sample``
            of the last step; None between epochs.
        train: whether the current phase trains.
        phase_idx: index of the current phase, training or test.
        train_phase_idx: index of the current epoch, from 0; −1 before the first.
        num_train_phases: number of epochs.
        iteration: number of completed training steps.
        local_iteration_num: number of completed steps in the current phase.
        max_iteration: number of training steps in the run.
        num_updates: number of training images seen on all ranks.
        where: position in the schedule, 0 to 1.
        checkpoint: content of the checkpoint to resume from; None for a new run.
        checkpoint_path: path of that checkpoint.
        checkpoint_folder: ``CHECKPOINT.DIR``.
    """

    config: AttrDict
    device: torch.device
    datasets: dict[str, Any]
    dataloaders: dict[str, Any]
    data_iterator: Iterator[Any]
    available_splits: list[str]
    images: NetworkConfig
    losses: list[float]
    meters: list[Any]
    optimizer: Any
    amp_grad_scaler: GradScaler | None
    last_batch: Any
    train: bool
    phase_idx: int
    train_phase_idx: int
    num_train_phases: int
    iteration: int
    local_iteration_num: int
    max_iteration: int
    num_updates: int
    checkpoint: dict[str, Any] | None
    checkpoint_path: str | None
    checkpoint_folder: str

    @property
    def loss(self) -> Any:
        """The loss."""

    @property
    def model(self) -> Any:
        """The model, wrapped in DistributedDataParallel if there are several ranks."""

    @property
    def where(self) -> float:
        """The position in the schedule."""

    def prepare_extraction(self, pin_memory: bool = False) -> None:
        """Build the data sets and the model."""

    def init_distributed_data_parallel_model(self) -> None:
        """Wrap the model in DistributedDataParallel if there are several ranks."""

    def recreate_data_iterator(
        self,
        phase_type: str,
        epoch: int,
        compute_start_iter: bool,
        train_phase_idx: int,
    ) -> None:
        """Restart the loader for a split."""

    def _build_model(self) -> Any:
        """Build the model and load the initial weights."""

    def _restore_model_weights(self, model: Any) -> Any:
        """Load initial weights into the model."""

    def _compute_start_iter_from_checkpoint(self, phase_type: str) -> int:
        """Return the step within the epoch to resume from."""

    def _update_classy_state(self, state_dict: Mapping[str, Any] | None = None) -> bool:
        """Load a checkpoint's state."""

    def _set_classy_state(self, state: Mapping[str, Any]) -> None:
        """Load a checkpoint's state, or raise the error that prevents it."""
