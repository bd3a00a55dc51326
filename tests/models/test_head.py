"""The heads f and g."""

import pytest
import torch

from pirl_plugin.models.head import PIRLHead

pytestmark = pytest.mark.tensors


def test_head__counts_the_papers_parameters():
    count = lambda head: sum(p.numel() for p in head.parameters())  # noqa: E731
    # f: 2048·128 + 128; g: the same, and 9·128·128 + 128 (Sec. 2.3, App. A.1)
    assert count(PIRLHead(2048)) == 262_272
    assert count(PIRLHead(2048, num_patches=9)) == 262_272 + 147_584


def test_head__concatenates_the_patches_of_an_image_in_their_order():
    head = PIRLHead(in_dim=4, out_dim=3, num_patches=9).double()
    features = torch.randn(18, 4, dtype=torch.float64)
    merged = head(features)
    assert merged.shape == (2, 3)
    for image in range(2):
        nine = [head.project(features[9 * image + p]) for p in range(9)]
        torch.testing.assert_close(merged[image], head.merge(torch.cat(nine)))


def test_head__mlp_form_is_not_linear_and_takes_4d_lists():
    head = PIRLHead(4, out_dim=3, hidden_dim=16)
    features = torch.randn(5, 4)
    torch.testing.assert_close(head([features[:, :, None, None]]), head(features))
    assert not torch.allclose(
        head(2 * features) - head(0 * features), 2 * (head(features) - head(0 * features))
    )
