"""Image lists and tables: columns, labels, and which files are refused."""

import json

import numpy as np
import pytest

from pirl_plugin.images.classes import NoLabels
from pirl_plugin.images.columns import Columns
from pirl_plugin.images.names import DISK_FILELIST, DISK_FOLDER, DISK_SHARDS
from pirl_plugin.images.opening import open_named, open_source
from tests.helpers.images import save_gray


def test_list__finds_path_and_label_columns_by_name(folder, subtests):
    for name, text, paths, labels in (
        (
            "a.txt",
            "image\na/1.png 3\nb/2.png\t4\n",
            ["image", "a/1.png", "b/2.png"],
            ["", "3", "4"],
        ),
        ("b.txt", "# today\na/1.png big cat\nb/2.png\n", ["a/1.png", "b/2.png"], ["big cat", ""]),
        ("c.txt", "a/1.png\r\nb/2 3.png u\r\n", ["a/1.png", "b/2 3.png"], ["", "u"]),
        (
            "a.csv",
            "\ufeffLabel,Path\nu,a/1.png\nv,b/2.png\n",
            ["a/1.png", "b/2.png"],
            ["u", "v"],
        ),
        ("b.csv", "path;class\na/1.png;u\n\nb/2.png\n", ["a/1.png", "b/2.png"], ["u", ""]),
        ("c.tsv", "target\tfilepath\nnan\ta/1.png\nv\tb/2.png", ["a/1.png", "b/2.png"], ["", "v"]),
        (
            "metadata.jsonl",
            '{"file_name": "a/1.png", "label": 7}\n\n{"file_name": "b/2.png", "label": null}\n',
            ["a/1.png", "b/2.png"],
            ["7", ""],
        ),
        (
            "late.jsonl",  # the first row has no label
            '{"path": "a/1.png"}\n{"path": "b/2.png", "label": "v"}\n',
            ["a/1.png", "b/2.png"],
            ["", "v"],
        ),
        ("f.csv", "path,label\na/1.png,u,\nb/2.png,v,,\n", ["a/1.png", "b/2.png"], ["u", "v"]),
    ):
        with subtests.test(name=name):
            (folder / name).write_text(text, newline="")
            source = open_source(folder / name)
            assert source.paths() == [str(folder / path) for path in paths]
            assert [[*source.classes, ""][index] for index in source.labels()] == labels


@pytest.mark.parametrize("label", [["u", "v"], ["u"], {"u": 1}])
def test_list__with_multiple_labels_per_image_has_no_classes(label, folder):
    rows = [{"path": "a/1.png", "labels": label}, {"path": "b/2.png", "labels": "v"}]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(NoLabels, match=r"a\.jsonl: an image has the label .*, but class"):
        open_source(folder / "a.jsonl").labels()


def test_table__without_known_or_chosen_column_is_refused(folder, subtests):
    for header, columns, words in (
        ("a/1.png,u", {}, r"None of the columns a/1\.png, u has a known name"),
        ("scan,finding", {"label": "finding"}, "None of the columns scan, finding has a known"),
        ("path,breed", {}, r"columns path, breed has .* such as label.* as `label_column`"),
        ("path,id,sex", {}, "None of the columns path, id, sex has a known name, such as label"),
        ("path", {}, "None of the columns path has a known name, such as label"),
        ("scan,finding", {"image": "scam"}, "`image_column` = scam is not a column"),
        ("path,finding", {"label": "findings"}, "`label_column` = findings is not a column of"),
    ):
        with subtests.test(words):
            cells = ",p" * header.count(",")
            (folder / "a.csv").write_text(f"{header}\na/1.png{cells}\nb/2.png{cells}\n")
            with pytest.raises(ValueError, match=words):
                open_source(folder / "a.csv", columns=Columns(**columns)).labels()


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_table__with_repeated_column_is_refused(separator, folder):
    for header, row in (("path,label,label,", "a/1.png,u,v,"), ("path,x,,,", "a/1.png,u,,,")):
        text = f"{header}\n{row}\n".replace(",", separator)
        (folder / "a.csv").write_text(text)
        if "label" not in header:  # empty names, as spreadsheets write them
            assert len(open_source(folder / "a.csv")) == 1
            continue
        with pytest.raises(ValueError, match=r"a\.csv has the column 'label' twice"):
            open_source(folder / "a.csv")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (DISK_FILELIST, "is a folder, not a list of images"),
        (DISK_SHARDS, r"contains no \.tar files"),
    ],
)
def test_folder__is_refused_by_sources_of_another_kind(name, words, folder):
    with pytest.raises(ValueError, match=f"{words}.* choose the data source {DISK_FOLDER}"):
        open_named(name, str(folder))


def test_table__uses_chosen_columns(folder, caplog):
    (folder / "a.csv").write_text("path;finding;scan\n-;u;a/1.png\n-;v;b/2.png\n")
    source = open_source(folder / "a.csv", columns=Columns("scan", "finding"))
    assert source.classes == ["u", "v"]
    assert source[1][1]
    open_source(folder, columns=Columns(label="finding"))
    assert f"{folder} has no columns" in caplog.text


def test_list__is_refused_if_incomplete_or_of_another_format(folder, subtests):
    for name, text, words in (
        ("d.csv", "label,path\nx,a/1.png\nx,\n", "entry 2 has no 'path'"),
        ("c.csv", "path,label\na/1.png,x\nb/2.png,x, y\n", "row 3 has more cells than the header"),
        ("f.jsonl", '{"path": "a/1.png"}\nb/2.png\n', "line 2 is not a JSON"),
        ("train.cache", "a/1.png\nb/2.png\n", "not an image, a folder"),
        ("all.zip", "PK", "not an image, a folder"),
        ("g.npy", "a/1.png\nb/2.png\n", "expected an array .* of strings"),
    ):
        with subtests.test(name=name):
            (folder / name).write_text(text)
            with pytest.raises(ValueError, match=words):
                open_source(folder / name)


def test_table__logs_columns_only_if_there_is_a_choice(folder, caplog):
    (folder / "two.csv").write_text("path,label\na/1.png,x\n")
    (folder / "three.csv").write_text("path,label,split\na/1.png,x,0\n")
    open_source(folder / "two.csv")
    assert not caplog.records
    open_source(folder / "three.csv")
    assert "three.csv: paths from the column 'path', labels from 'label'" in caplog.text


def test_list__is_refused_if_not_in_utf8(folder, tmp_path, subtests):
    """A cp1252 list used to be accepted, and paths were written in bytes that pandas refuses."""
    save_gray(folder / "é" / "é.png")
    for name, text in (
        ("a.csv", "path,label\na/1.png,x\né/é.png,y\n"),
        ("a.txt", "a/1.png x\né/é.png y\n"),
        ("a.tsv", "path\tlabel\ré/é.png\tcafé\r"),
        ("a.jsonl", '{"path": "é/é.png"}\n'),
    ):
        for encoding, is_read in (
            ("utf-8", True), ("utf-8-sig", True), ("cp1252", False), ("utf-16", False),
        ):  # fmt: skip
            with subtests.test(name=name, encoding=encoding):
                (folder / name).write_bytes(text.encode(encoding))
                if is_read:
                    assert str(folder / "é" / "é.png") in open_source(folder / name).paths()
                else:
                    with pytest.raises(ValueError, match=r"is not UTF-8: .* in position"):
                        open_source(folder / name)
    np.save(folder / "a.npy", np.array([b"a/1.png", "é/é.png".encode("cp1252")]))
    with pytest.raises(ValueError, match=r"a\.npy: expected an array"):
        open_source(folder / "a.npy")


@pytest.mark.parametrize("second", ["a/1.png", "./a/1.png", "b/../a/1.png"])
def test_list__with_conflicting_labels_has_no_classes(second, folder):
    """It used to be evaluated as a classification task."""
    (folder / "a.csv").write_text(f"path,label\na/1.png,u\nb/2.png,v\n{second},v\n")
    with pytest.raises(NoLabels, match=r"a/1\.png has two labels, u and v"):
        open_source(folder / "a.csv").labels()
    (folder / "a.csv").write_text(f"path,label\na/1.png,u\nb/2.png,v\n{second},u\na/1.png,\n")
    assert open_source(folder / "a.csv").labels().tolist() == [0, 1, 0, -1]


def test_filelist__reads_arrays_and_replaces_prefixes(folder):
    np.save(folder / "list.npy", ["/old/a/1.png", "/old/b/2.png"])
    options = {"remove_prefix": "/old/", "new_prefix": f"{folder}/"}
    assert open_named("pirl_disk_filelist", folder / "list.npy", **options)[1][1]
    with pytest.raises(ValueError, match=r"None of 2 images .*/old/a/1\.png: .*No such file"):
        _ = open_source(folder / "list.npy").pixel_type
    np.save(folder / "objects.npy", np.array(["a", "b"], object), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects"):
        open_source(folder / "objects.npy")


@pytest.mark.parametrize("text", ["scan.dcm\n", "scan.dcm cat\n", "path,label\nscan.dcm,cat\n"])
def test_list__of_files_in_other_formats_names_a_converter(text, tmp_path):
    (tmp_path / "scan.dcm").write_bytes(bytes(128) + b"DICM")
    file = tmp_path / ("list.csv" if "path" in text else "list.txt")
    file.write_text(text)
    with pytest.raises(ValueError, match=r"scan\.dcm: it is not .* convert \.dcm .* use pydicom"):
        _ = open_source(file).pixel_type
