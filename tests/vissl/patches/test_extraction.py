"""The host's extraction of features on a CPU."""

from types import SimpleNamespace

import torch
from vissl.trainer.trainer_main import SelfSupervisionTrainer


def _trainer(device, seen):
    """The host's trainer with what its extraction uses of a task."""

    def model(images):
        seen.append(images)
        return [images.mean(dim=(2, 3))]

    model.eval = lambda: None
    features = SimpleNamespace(EVAL_MODE_ON=False)
    trainer = object.__new__(SelfSupervisionTrainer)
    trainer.cfg = SimpleNamespace(
        DATA=SimpleNamespace(PIN_MEMORY=False),
        MODEL=SimpleNamespace(FEATURE_EVAL_SETTINGS=features),
        EXTRACT_FEATURES=SimpleNamespace(CHUNK_THRESHOLD=-1),
    )
    batch = {
        "data": [torch.rand(2, 3, 4, 4), torch.rand(1, 3, 4, 4)],
        "label": [torch.tensor([5, 6]), torch.tensor([7])],
        "data_idx": [torch.tensor([2, 0]), torch.tensor([1])],
    }
    trainer.task = SimpleNamespace(
        device=torch.device(device),
        model=model,
        prepare_extraction=lambda pin_memory: None,
        init_distributed_data_parallel_model=lambda: None,
        available_splits=["TRAIN"],
        dataloaders={"train": [batch]},
    )
    trainer._add_dummy_layer = trainer._cleanup_task = lambda: None
    return trainer, batch


def test_extraction__runs_on_a_cpu_with_the_hosts_own_loop(tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    cuda = torch.Tensor.cuda
    seen = []
    trainer, batch = _trainer("cpu", seen)
    trainer.extract(str(tmp_path))
    written = {name: np.load(tmp_path / f"rank0_chunk0_train_heads_{name}.npy")
               for name in ("inds", "features", "targets")}  # fmt: skip
    images = torch.cat(batch["data"])
    assert torch.equal(seen[0], images)
    assert written["inds"].tolist() == [0, 1, 2]
    assert written["targets"].ravel().tolist() == [6, 7, 5]
    expected = images[[1, 2, 0]].mean(dim=(2, 3))
    assert torch.equal(torch.from_numpy(written["features"]), expected)
    assert torch.Tensor.cuda is cuda


def test_extraction__on_a_gpu_is_the_hosts():
    import inspect

    source = inspect.unwrap(SelfSupervisionTrainer.extract)
    assert source.__module__ == "vissl.trainer.trainer_main"
    assert source is not SelfSupervisionTrainer.extract
