"""Tables whose columns name files, addresses and decoders: nothing is opened, fetched or imported.

A file's own metadata declares the types of its columns; the package ``datasets`` would decode them.
"""

import json
import sys

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from pirl_plugin.images.classes import NoLabels
from pirl_plugin.images.opening import open_source
from tests.helpers.images import encoded
from tests.helpers.server import recording_server

FILE = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
IMAGE = {"_type": "Image"}
DECODED = ("Image", "Audio", "Video", "Pdf", "Nifti", "Mesh")
DECODERS = {"torchcodec", "pdfplumber", "nibabel", "trimesh"}


@pytest.fixture
def server():
    """The address of a local server, and the requests that it got."""
    with recording_server() as recorded:
        yield recorded


@pytest.fixture
def opened(monkeypatch):
    """The names of files opened and modules imported while a test runs."""
    names = []
    is_on = [True]

    def note(event, arguments):
        if is_on[0] and event in ("open", "import"):
            names.append(str(arguments[0]))

    sys.addaudithook(note)  # cannot be removed
    yield names
    is_on[0] = False


def write(path, columns, types):
    """Write Parquet with these types in its metadata."""
    metadata = {"huggingface": json.dumps({"info": {"features": types}})}
    table = pyarrow.table(columns).replace_schema_metadata(metadata)
    parquet.write_table(table, path)


def in_saved_folder(file):
    """Write the same table as ``save_to_disk`` does, and return the folder."""
    table = parquet.read_table(file)
    folder = file.with_suffix("")
    folder.mkdir()
    with pyarrow.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as writer:
        writer.write_table(table)
    (folder / "state.json").touch()
    return folder


def images(count=3):
    return pyarrow.array([{"bytes": encoded("PNG"), "path": None}] * count, FILE)


def test_label_column__opens_and_fetches_nothing(server, opened, tmp_path, subtests):
    address, requests = server
    secret = tmp_path / "secret.png"
    secret.write_bytes(encoded("PNG"))
    paths = [f"{address}/x.png", str(secret), secret.name]
    rows = [{"bytes": None, "path": path} for path in paths]
    for kind in DECODED:
        plain = {"_type": kind}
        for nesting, values, kinds in (
            ("plain", pyarrow.array(rows, FILE), plain),
            ("list", pyarrow.array([[row] for row in rows]), {"_type": "List", "feature": plain}),
            ("struct", pyarrow.array([{"a": row} for row in rows]), {"a": plain}),
        ):
            file = tmp_path / f"{kind}_{nesting}.parquet"
            write(file, {"image": images(), "label": values}, {"image": IMAGE, "label": kinds})
            for path in (file, in_saved_folder(file)):
                with subtests.test(path=path.name):
                    opened.clear()
                    source = open_source(path)
                    with pytest.raises(NoLabels, match=r"an image has the label .* one class"):
                        _ = source.classes
                    assert [source[row][1] for row in range(3)] == [True] * 3
                    assert not DECODERS.intersection(opened)
                    assert str(secret) not in opened
    assert requests == []


def test_image_column__may_be_of_any_declared_type(server, opened, tmp_path):
    address, requests = server
    secret = tmp_path / "secret.png"
    secret.write_bytes(encoded("PNG"))
    paths = [f"{address}/x.png", str(secret), secret.name]
    rows = [{"bytes": None, "path": path} for path in paths]
    opened.clear()
    values = pyarrow.concat_arrays([images(1), pyarrow.array(rows, FILE)])
    for kind in DECODED:
        file = tmp_path / f"{kind}.parquet"
        write(file, {"image": values}, {"image": {"_type": kind}})
        source = open_source(file)
        assert [source[row][1] for row in range(4)] == [True] + [False] * 3
    assert not DECODERS.intersection(opened)
    assert str(secret) not in opened
    assert requests == []


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (pyarrow.array(["b", "a", "b"]).dictionary_encode(), ["a", "b"]),
        (pyarrow.array([7, None, 9], pyarrow.int8()), ["7", "9"]),
        (pyarrow.array(["a", "b", None], pyarrow.large_string()), ["a", "b"]),
        (pyarrow.array([True, False, True]), ["False", "True"]),
    ],
)
def test_labels__are_plain_values(values, names, tmp_path):
    parquet.write_table(pyarrow.table({"image": images(), "label": values}), tmp_path / "a.parquet")
    assert open_source(tmp_path / "a.parquet").classes == names


def test_labels__are_numbers_without_a_class_name(tmp_path):
    kinds = {"image": IMAGE, "label": {"_type": "ClassLabel", "names": ["a", "b"]}}
    write(tmp_path / "a.parquet", {"image": images(), "label": pyarrow.array([-1, 1, 7])}, kinds)
    source = open_source(tmp_path / "a.parquet")
    assert (source.classes, source.labels().tolist()) == (["b", "7"], [-1, 0, 1])


def test_arrays__keep_type_and_shape(tmp_path):
    expected = np.arange(2 * 4 * 5, dtype=np.uint16).reshape(2, 4, 5)
    nested = pyarrow.list_(pyarrow.list_(pyarrow.uint16()))
    fixed = pyarrow.list_(pyarrow.list_(pyarrow.uint16(), 5), 4)
    for kind in (nested, fixed):
        table = pyarrow.table({"image": pyarrow.array(expected.tolist(), kind)})
        parquet.write_table(table, tmp_path / "a.parquet")
        pixels = open_source(tmp_path / "a.parquet").read(1)
        assert np.array_equal(pixels, expected[1:])


def test_arrays__are_unreadable_if_pixels_are_missing(tmp_path):
    rows = [[[1, 2], [3, 4]], [[1, None], [3, 4]], [[1, 2], None], [[1, 2], [3]], None, []]
    kind = pyarrow.list_(pyarrow.list_(pyarrow.uint8()))
    parquet.write_table(pyarrow.table({"image": pyarrow.array(rows, kind)}), tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet")
    assert [source[row][1] for row in range(6)] == [True] + [False] * 5
