"""Groups from columns: tables, Hugging Face data sets, data sets of other libraries."""

import datasets
import pytest
import torch
from PIL import Image

from pirl_plugin.images.image_dataset import ImageDataset
from pirl_plugin.views.jigsaw import JigsawViews
from tests.helpers.images import save_gray

PATIENTS = ["p1", "p2", None, "p1", "NA"]
EXPECTED = [0, 1, 2, 0, 4]  # an image without a group is alone


class Photos(list):
    """A data set with an attribute."""

    patients = PATIENTS


def table(folder):
    rows = ["path,patient"]
    for number, patient in enumerate(PATIENTS):
        save_gray(folder / f"{number}.png")
        rows.append(f"{number}.png,{patient or ''}")
    (folder / "list.csv").write_text("\n".join(rows))
    return folder / "list.csv"


def hugging_face(folder):
    photos = [Image.new("RGB", (8, 8))] * len(PATIENTS)
    return datasets.Dataset.from_dict({"image": photos, "patient": PATIENTS}).cast_column(
        "image", datasets.Image()
    )


def own_data(folder):
    return Photos(torch.zeros(len(PATIENTS), 3, 8, 8, dtype=torch.uint8))


@pytest.mark.parametrize("make", [table, hugging_face, own_data])
def test_group_column(tmp_path, make):
    data = make(tmp_path)
    column = "patients" if make is own_data else "patient"
    images = ImageDataset(data, JigsawViews(), group_column=column)
    assert images.groups().tolist() == EXPECTED
    assert ImageDataset(data, JigsawViews()).groups() is None
    with pytest.raises((ValueError, AttributeError), match="plate"):
        ImageDataset(data, JigsawViews(), group_column="plate").groups()
