"""Random draws: reproducible by (seed, epoch, image), with the expected distributions."""

import math
import pickle
import zlib

import numpy as np
import pytest
import torch
from torchvision.transforms import RandomResizedCrop

from pirl_plugin.views.jigsaw import PermutationSet, patch_offsets
from pirl_plugin.views.pixels import image_generator, random_resized_crop_box

RATIO = (3 / 4, 4 / 3)


def two_sample_distance(first, second):
    """Largest difference between two empirical distribution functions (Kolmogorov–Smirnov)."""
    first, second = np.sort(first), np.sort(second)
    at = np.concatenate([first, second])
    below = [np.searchsorted(sample, at, "right") / len(sample) for sample in (first, second)]
    return np.abs(below[0] - below[1]).max()


@pytest.mark.parametrize("key", [(0, 0, 0), (1, 2, 3), (-1, 2**24 - 1, 2**40 - 1), (2**70, 0, 9)])
def test_generator__is_philox_keyed(key):
    seed, epoch, row = key
    expected = np.random.Generator(
        np.random.Philox(key=(seed % 2**64) * 2**64 + row * 2**24 + epoch)
    )
    found = image_generator(*key)
    for draw in ("random", "permutation", "integers"):
        size = 9 if draw == "permutation" else 1000
        np.testing.assert_array_equal(getattr(found, draw)(size), getattr(expected, draw)(size))
    copy = pickle.loads(pickle.dumps(found))
    assert copy.random() == found.random()


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.uint32, lambda i: torch.tensor(i).int()])
def test_generator__accepts_any_integer_type(kind):
    """32-bit rows silently lost their upper bits, leaving 256 streams for all images."""
    for row in (0, 1, 255, 256, 32_767):
        expected = image_generator(0, np.int16(3), row).random()
        assert image_generator(0, 3, kind(row)).random() == expected


@pytest.mark.parametrize(
    ("height", "width", "scale"),
    [(375, 500, (0.08, 1.0)), (375, 500, (0.6, 1.0)), (500, 120, (0.6, 1.0)), (31, 33, (0.08, 1))],
)
def test_crop_box__matches_torchvision_distribution(height, width, scale):
    count = 4000
    rng = np.random.default_rng(0)
    ours = np.array([random_resized_crop_box(height, width, scale, rng) for _ in range(count)])
    torch.manual_seed(0)
    image = torch.empty(1, height, width)
    theirs = np.array(
        [RandomResizedCrop.get_params(image, list(scale), list(RATIO)) for _ in range(count)]
    )
    # 1.95 √(2 / n) is the 0.1 % point of the statistic.
    for column in range(4):
        assert two_sample_distance(ours[:, column], theirs[:, column]) < 1.95 * math.sqrt(2 / count)


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (50, 1), (2, 3), (4000, 7)])
def test_crop_box__stays_inside_any_image(size):
    rng = np.random.default_rng(1)
    for _ in range(200):
        top, left, height, width = random_resized_crop_box(*size, (0.08, 1.0), rng)
        assert min(height, width) >= 1
        assert min(top, left) >= 0
        assert top + height <= size[0]
        assert left + width <= size[1]


def test_crop_box__falls_back_to_the_center():
    # No box of at least 60 % of 10 × 1000 has a ratio below 4/3: the largest is 10 × 13.
    box = random_resized_crop_box(10, 1000, (0.6, 1.0), np.random.default_rng(0))
    assert box == (0, (1000 - 13) // 2, 10, 13)


def test_crop_box__consumes_same_draws_for_any_image():
    after = []
    for size in [(300, 400), (10, 1000)]:
        rng = np.random.default_rng(3)
        random_resized_crop_box(*size, (0.6, 1.0), rng)
        after.append(rng.random())
    assert after[0] == after[1]


def test_patch_offsets__are_uniform_in_each_cell_including_ends():
    rng = np.random.default_rng(0)
    offsets = np.stack([patch_offsets(255, 3, 64, rng) for _ in range(6000)])
    cells = np.array([(85 * (k // 3), 85 * (k % 3)) for k in range(9)])
    inside = offsets - cells
    assert inside.min() == 0
    assert inside.max() == 21
    for cell in range(9):
        for axis in range(2):
            counts = np.bincount(inside[:, cell, axis], minlength=22)
            expected = 6000 / 22
            chi2 = ((counts - expected) ** 2 / expected).sum()
            assert chi2 < 55  # the 0.01 % point for 21 degrees of freedom is 54


def test_patch_offsets__are_fixed_for_full_cells():
    offsets = patch_offsets(6, 3, 2, np.random.default_rng(0))
    assert offsets.tolist() == [[t, left] for t in (0, 2, 4) for left in (0, 2, 4)]


def test_permutations__draw_all_orders_uniformly():
    rng = np.random.default_rng(0)
    every = PermutationSet(None, 3)
    assert every.orders is None
    draws = np.stack([every.draw(rng)[1] for _ in range(6000)])
    counts = np.unique(draws, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert ((counts - 1000) ** 2 / 1000).sum() < 26  # 0.01 % point for 5 degrees of freedom
    positions = np.stack([PermutationSet().draw(rng)[1] for _ in range(3000)])
    assert abs((positions == np.arange(9)).mean() - 1 / 9) < 0.01


@pytest.mark.parametrize(
    ("size", "checksum"),
    [
        (1, 611648863), (2, 2372823970), (9, 2670575366), (72, 1368601689), (1000, 3614467552),
        (10_000, 3934009420), (50_000, 996473170), (362_880, 197351719),
    ],
)  # fmt: skip
def test_finite_permutations__are_distinct_and_match_earlier_versions(size, checksum):
    """A trained classifier's output is the index of an order in the set."""
    orders = PermutationSet(size).orders
    assert orders.shape == (size, 9)
    assert (np.sort(orders, axis=1) == np.arange(9)).all()
    numbers = orders.astype(np.int64) @ 9 ** np.arange(9)
    assert len(np.unique(numbers)) == size
    assert zlib.crc32(orders.astype("<i2").tobytes()) == checksum


@pytest.mark.parametrize(
    ("size", "least"), [(2, 9), (9, 8), (72, 6), (100, 6), (701, 5), (2000, 4)]
)
def test_permutations__small_sets_lie_far_apart(size, least):
    orders = PermutationSet(size).orders
    distance = (orders[:, None] != orders[None]).sum(axis=2)
    assert distance[~np.eye(size, dtype=bool)].min() >= least


def test_permutations__draw_the_complete_finite_set():
    rng = np.random.default_rng(0)
    chosen = PermutationSet(20, 4)
    drawn = {tuple(chosen.draw(rng)[1]) for _ in range(1000)}
    assert drawn == {tuple(order) for order in chosen.orders.tolist()}


def test_permutations__refuse_impossible_sizes(subtests):
    words = r"num_permutations = .*: expected"
    for size in (0, -1, 362_881, 1.5, "all"):
        with subtests.test(size=size), pytest.raises(ValueError, match=words):
            PermutationSet(size)


@pytest.mark.parametrize(("size", "num_patches"), [(2, 144), (10, 25), (20_000, 16)])
def test_permutations__use_each_of_many_patches_once(size, num_patches):
    orders = PermutationSet(size, num_patches).orders
    assert orders.shape == (size, num_patches)
    assert (np.sort(orders) == np.arange(num_patches)).all()
