"""Make image sets unlike photos from public data, for ``starts.py``.

    git clone https://github.com/siddhartamukherjee/NEU-DET-Steel-Surface-Defect-Detection STEEL
    python extra_scripts/claims/image_sets.py steel STEEL OUT
    git clone https://github.com/Jakobovski/free-spoken-digit-dataset DIGITS
    python extra_scripts/claims/image_sets.py digits DIGITS OUT
    git clone https://github.com/minh-doan/MLCP CELLS
    python extra_scripts/claims/image_sets.py cells CELLS OUT
    pip install --target SCENE --no-deps tensorly
    python extra_scripts/claims/image_sets.py scene SCENE OUT

Writes ``OUT/train/CLASS/*`` and ``OUT/val/CLASS/*``. If the files allow it, train and test images
come from different sources:

- ``steel``: six kinds of surface defects (NEU-DET, Song and Yan 2013), 200 px. Neighboring numbers
  may show the same strip, so in each class, images up to number 220 are for training and the others
  for testing.
- ``digits``: spectrograms of spoken digits, 128 px: four speakers for training, and two others for
  testing.
- ``cells``: imaging flow cytometry of the cell cycle (Blasi et al. 2016), 40 px, 16 bits, three
  channels (bright field, a DNA stain, dark field), and the four phases with hundreds of cells. In
  each phase, the first 350 cells are for training, and the last 200 for testing.
- ``scene``: the hyperspectral scene Indian Pines (Baumgardner et al. 2015), 145 × 145 pixels, 16
  bits, with its 200 bands averaged in groups of 10. The images are tiles of 17 × 17 pixels with the
  class of their center. They lie within blocks of 29 × 29 pixels that alternate between training
  and testing, as on a chessboard, so no pixel is in both. Classes with fewer than 20 tiles in
  either are left out.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image
from scipy.io import wavfile
from scipy.signal import stft

from pirl_plugin.system.arguments import Parser

LAST_TRAINING_NUMBER = 220  # of about 300 per steel class
TEST_SPEAKERS = ("theo", "yweweler")
WINDOW = 256  # samples: 32 ms
HOP = 32  # samples
FLOOR = -80.0  # dB below the loudest point
SIDE = 128  # of a spectrogram, in pixels
PHASES = ("G1", "S_phase", "G2", "Prophase")
CHANNELS = (3, 4, 6)  # bright field, DNA, dark field
CELL = 40  # side of a cell in a montage of 30 × 30 cells, in pixels
EMPTY_DEVIATION = 20  # in the bright field; about 5 without a cell
TRAINING_CELLS = 350
TEST_CELLS = 200
MEAN_OF_BANDS = 10
BLOCK = 29  # pixels
TILE = 17  # pixels
FEWEST_TILES = 20  # per class, in train and in test


def make_steel(clone: Path, out: Path) -> None:
    """Copy the images, named ``CLASS_NUMBER.jpg``, into class folders."""
    for file in sorted([*clone.glob("IMAGES/*.jpg"), *clone.glob("Validation_Images/*.jpg")]):
        label, _, number = file.stem.rpartition("_")
        split = "train" if int(number) <= LAST_TRAINING_NUMBER else "val"
        folder = out / split / label
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / file.name)


def make_digits(clone: Path, out: Path) -> None:
    """Write a spectrogram for each recording ``DIGIT_SPEAKER_NUMBER.wav``."""
    for file in sorted(clone.glob("recordings/*.wav")):
        label, speaker, _ = file.stem.split("_")
        _, samples = wavfile.read(file)
        folder = out / ("val" if speaker in TEST_SPEAKERS else "train") / label
        folder.mkdir(parents=True, exist_ok=True)
        spectrogram(samples).save(folder / f"{file.stem}.png")


def spectrogram(samples: np.ndarray) -> Image.Image:
    """Draw a recording's spectrogram in gray: time to the right, frequency upward.

    Args:
        samples: integers (N,).

    Returns:
        An image with 128 × 128 pixels; white is the loudest point, and black 80 dB below it.
    """
    padded = np.pad(samples, (0, max(0, WINDOW - len(samples))))
    _, _, amplitudes = stft(padded, nperseg=WINDOW, noverlap=WINDOW - HOP)
    power = np.abs(amplitudes[1:]) ** 2  # without the mean
    decibels = 10 * np.log10(np.maximum(power / max(power.max(), 1e-12), 1e-12))
    levels = 255 * (1 - np.maximum(decibels, FLOOR) / FLOOR)
    image = Image.fromarray(levels[::-1].round().astype(np.uint8))
    return image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def make_cells(clone: Path, out: Path) -> None:
    """Cut the cells from each phase's montage, which ends with tiles without a cell."""
    for phase in PHASES:
        channels = []
        for channel in CHANNELS:
            (file,) = clone.glob(f"images/Experiment_1/{phase}/Ch{channel}_*.tif")
            montage = tifffile.imread(file)
            tiles = montage.reshape(len(montage) // CELL, CELL, -1, CELL).swapaxes(1, 2)
            channels.append(tiles.reshape(-1, CELL, CELL))
        cells = np.stack(channels, axis=-1)
        is_cell = cells[..., 0].std(axis=(1, 2)) > EMPTY_DEVIATION
        cells = cells[: is_cell.nonzero()[0][-1] + 1]
        for number, cell in enumerate(cells[:TRAINING_CELLS]):
            save_array(cell, out / "train" / phase / f"{number}.npy")
        for number, cell in enumerate(cells[-TEST_CELLS:]):
            save_array(cell, out / "val" / phase / f"{number}.npy")


def make_scene(package: Path, out: Path) -> None:
    """Cut each block's tiles around labeled pixels."""
    data = package / "tensorly" / "datasets" / "data"
    bands = np.load(data / "Indian_pines_corrected.npy")
    classes = np.load(data / "Indian_pines_gt.npy")  # 0: no class
    pixels = bands.reshape(*bands.shape[:2], -1, MEAN_OF_BANDS).mean(axis=3).round()
    pixels = pixels.astype(np.uint16)
    half = TILE // 2
    rows, columns = classes.nonzero()
    is_inside = [(half <= axis % BLOCK) & (axis % BLOCK < BLOCK - half) for axis in (rows, columns)]
    is_test = (rows // BLOCK + columns // BLOCK) % 2 == 1
    labels = classes[rows, columns]
    for label in np.unique(labels):
        chosen = is_inside[0] & is_inside[1] & (labels == label)
        if min((chosen & is_test).sum(), (chosen & ~is_test).sum()) < FEWEST_TILES:
            continue
        for pixel in chosen.nonzero()[0]:
            row, column = rows[pixel], columns[pixel]
            tile = pixels[row - half : row + half + 1, column - half : column + half + 1]
            split = "val" if is_test[pixel] else "train"
            save_array(tile, out / split / f"{label:02}" / f"{row}_{column}.npy")


def save_array(array: np.ndarray, file: Path) -> None:
    """Save an array (H, W, C), creating the folder if needed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    np.save(file, array)


SETS = {"steel": make_steel, "digits": make_digits, "cells": make_cells, "scene": make_scene}


def main() -> None:
    """Make an image set."""
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=SETS)
    parser.add_argument("clone", type=Path, help="folder with the repository or package")
    parser.add_argument("out", type=Path, help="folder for the image set")
    options = parser.parse_args()
    SETS[options.name](options.clone, options.out)


if __name__ == "__main__":
    main()
