"""Make image sets unlike photos from public repositories, for ``starts.py``.

    git clone https://github.com/siddhartamukherjee/NEU-DET-Steel-Surface-Defect-Detection STEEL
    python extra_scripts/claims/image_sets.py steel STEEL OUT
    git clone https://github.com/Jakobovski/free-spoken-digit-dataset DIGITS
    python extra_scripts/claims/image_sets.py digits DIGITS OUT

Writes ``OUT/train/CLASS/*.png`` and ``OUT/val/CLASS/*.png``. Train and test images come from
different sources where the files tell them apart:

- ``steel``: six kinds of surface defects (NEU-DET, Song and Yan 2013), 200 px. Neighboring numbers
  may show the same strip, so the images up to number 220 of each class train and the others test.
- ``digits``: spectrograms of spoken digits, 128 px. Four speakers train, and the other two test.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import wavfile
from scipy.signal import stft

LAST_TRAINING_NUMBER = 220  # of about 300 in each class of steel
TEST_SPEAKERS = ("theo", "yweweler")
WINDOW = 256  # samples: 32 ms
HOP = 32  # samples
FLOOR = -80.0  # dB below the loudest point
SIDE = 128  # of a spectrogram, pixels


def make_steel(clone: Path, out: Path) -> None:
    """Copy the images, named ``CLASS_NUMBER.jpg``, into class folders."""
    for file in sorted([*clone.glob("IMAGES/*.jpg"), *clone.glob("Validation_Images/*.jpg")]):
        label, _, number = file.stem.rpartition("_")
        split = "train" if int(number) <= LAST_TRAINING_NUMBER else "val"
        folder = out / split / label
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / file.name)


def make_digits(clone: Path, out: Path) -> None:
    """Write a spectrogram of each recording, named ``DIGIT_SPEAKER_NUMBER.wav``."""
    for file in sorted(clone.glob("recordings/*.wav")):
        label, speaker, _ = file.stem.split("_")
        _, samples = wavfile.read(file)
        folder = out / ("val" if speaker in TEST_SPEAKERS else "train") / label
        folder.mkdir(parents=True, exist_ok=True)
        spectrogram(samples).save(folder / f"{file.stem}.png")


def spectrogram(samples: np.ndarray) -> Image.Image:
    """Draw the spectrogram of a recording in gray: time to the right, frequency upward.

    Args:
        samples: integers (N,).

    Returns:
        Image of 128 × 128 pixels; white is the loudest point, and black 80 dB below it.
    """
    padded = np.pad(samples, (0, max(0, WINDOW - len(samples))))
    _, _, amplitudes = stft(padded, nperseg=WINDOW, noverlap=WINDOW - HOP)
    power = np.abs(amplitudes[1:]) ** 2  # without the mean
    decibels = 10 * np.log10(np.maximum(power / max(power.max(), 1e-12), 1e-12))
    levels = 255 * (1 - np.maximum(decibels, FLOOR) / FLOOR)
    image = Image.fromarray(levels[::-1].round().astype(np.uint8))
    return image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)


SETS = {"steel": make_steel, "digits": make_digits}


def main() -> None:
    """Make a set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=SETS)
    parser.add_argument("clone", type=Path, help="work tree of the repository")
    parser.add_argument("out", type=Path, help="folder of the set")
    options = parser.parse_args()
    SETS[options.name](options.clone, options.out)


if __name__ == "__main__":
    main()
