"""The loss in VISSL's terms."""

import torch

from pirl_plugin.method.loss import PIRLLoss
from pirl_plugin.vissl.adapters.method import VISSLPIRLLoss

SECTION = {"name": "pirl_loss", "num_train_samples": 20, "embedding_dim": 4, "num_negatives": 5}


def test_loss__accepts_host_outputs_with_image_last():
    adapted = VISSLPIRLLoss.from_config(SECTION)
    loss = PIRLLoss(20, embedding_dim=4, num_negatives=5)
    f, first, second = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([4, 9])
    for output, transformed in (([first, f], first), ([first, second, f], [first, second])):
        assert torch.equal(adapted(output, index), loss(f, transformed, index))
