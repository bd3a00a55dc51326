"""Columns of a row of photometric parameters: for those who draw it and those who apply it."""

FLIP, GREY, ORDER, BRIGHTNESS, CONTRAST, SATURATION, HUE = 0, 1, 2, 6, 7, 8, 9
EXTRAS, POSTERIZE, SHARPNESS, SOLARIZE, EQUALIZE, BLUR = 10, 11, 12, 13, 14, 15
NUM_COLUMNS = 16

DRAWS = 20
"""Numbers drawn for a row: one for each column, then those below, then two to spare."""
JITTER_DRAW, BLUR_DRAW = 16, 17

POSTERIZE_BITS = (4, 8)
SHARPNESS_FACTORS = (0.1, 1.9)
SOLARIZE_THRESHOLDS = (0, 256)
"""The ranges of VISSL's ``ImgPilRandomPhotometric``, the ends of integers included."""
