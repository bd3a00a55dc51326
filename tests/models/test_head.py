"""The projection heads f and g."""

import pytest
import torch

from pirl_plugin.models.head import PIRLHead

pytestmark = pytest.mark.tensors


def test_head__has_as_many_parameters_as_in_the_paper():
    count = lambda head: sum(p.numel() for p in head.parameters())  # noqa: E731
    # f: 2048·128 + 128; g: the same, and 9·128·128 + 128 (Sec. 2.3, App. A.1)
    assert count(PIRLHead(2048)) == 262_272
    assert count(PIRLHead(2048, num_patches=9)) == 262_272 + 147_584


def test_head__concatenates_patches_in_order():
    head = PIRLHead(in_dim=4, out_dim=3, num_patches=9).double()
    features = torch.randn(18, 4, dtype=torch.float64)
    merged = head(features)
    assert merged.shape == (2, 3)
    for image in range(2):
        nine = [head.project(features[9 * image + p]) for p in range(9)]
        torch.testing.assert_close(merged[image], head.merge(torch.cat(nine)))


def test_mlp_head__is_nonlinear_and_accepts_4d():
    head = PIRLHead(4, out_dim=3, hidden_dim=16)
    features = torch.randn(5, 4)
    torch.testing.assert_close(head(features[:, :, None, None]), head(features))
    assert not torch.allclose(
        head(2 * features) - head(0 * features), 2 * (head(features) - head(0 * features))
    )
