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
    with pytest.raises(ValueError, match="multiple of num_patches = 9 rows, got 16"):
        head(features[:16])


def test_head__mlp_form_is_not_linear_and_takes_4d_lists():
    head = PIRLHead(4, out_dim=3, hidden_dim=16)
    features = torch.randn(5, 4)
    torch.testing.assert_close(head([features[:, :, None, None]]), head(features))
    assert not torch.allclose(
        head(2 * features) - head(0 * features), 2 * (head(features) - head(0 * features))
    )


def test_head__of_no_width_is_refused(subtests):
    """Without hidden values, the embedding of every image is the last bias."""
    for name in ("in_dim", "out_dim", "num_patches", "hidden_dim"):
        words = f"{name} = 0: expected a whole number of at least 1"
        with subtests.test(name=name), pytest.raises(ValueError, match=words):
            PIRLHead(**{"in_dim": 4, name: 0})
