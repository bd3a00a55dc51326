"""The report page: what it holds, that it needs no other file, and what it refuses."""

import json
import re

import pytest

from pirl_plugin.evaluation.bank_measures import LINE_KEY
from pirl_plugin.quickstart.page.monitor import read_monitor
from pirl_plugin.quickstart.page.page import FeatureMap, Neighbors, write_report
from tests.helpers.report_pages import RUN, Page, picture, report, written


def test_write_report__shows_the_figures(tmp_path):
    page = Page(written(tmp_path))
    # 62.5 - 40.25 = 22.25 and 28.0 - 30.5 = -2.5: a loss is shown as one
    for words in ("+22.2 points", "−2.5 points", "40.2 %", "62.5 %", "30.5 %", "28.0 %"):
        assert words in page.text
    for words in ("Seed 3", "Epochs 24", "5 min 12 s", "1,195 images/s", "from 7.00 to 4.25"):
        assert words in page.text
    for words in ("1,200 iterations", "trunk ResNet-10", "python -m pirl_plugin x --name 'a b'"):
        assert words in page.text
    classes = [tag.get("class") for tag in page.all("p")]
    assert {"gain", "gain loss"} <= set(classes)
    widths = [tag["style"] for tag in page.all("div") if tag.get("class", "").startswith("fill")]
    assert widths == ["width:40.25%", "width:62.50%", "width:30.50%", "width:28.00%"]


def test_write_report__embeds_every_picture_with_words_for_it(tmp_path):
    page = Page(written(tmp_path))
    pictures = page.all("img")
    assert len(pictures) == 3 + 4  # photo, view, patches; query, two of PIRL's, one of random's
    assert all(tag["src"].startswith("data:image/png;base64,") for tag in pictures)
    alts = [tag["alt"] for tag in pictures]
    assert all(alts)
    assert len(set(alts)) == len(alts)
    assert verdicts(page) == ["same", "other", "other"]
    assert "PIRL · 1 of 2" in page.text
    assert "Random · 0 of 1" in page.text
    assert [tag["class"] for tag in page.all("svg")] == ["wide", "narrow"]


def test_write_report__draws_the_measures_of_the_epochs(tmp_path):
    epochs = [
        (1, {"knn_top1": (12.5, 10.0), "effective_rank": (90.0, 127.0)}),
        (3, {"knn_top1": (45.25, 10.0)}),  # the second was left out
    ]
    page = Page(written(tmp_path, monitor=epochs))
    assert "After epoch 3: kNN in the bank, % 45.25 (chance 10.00)." in page.text
    assert "Effective rank" not in page.text  # not of every epoch
    assert [tag["class"] for tag in page.all("svg")] == 2 * ["wide", "narrow"]
    assert "While it trained" not in Page(written(tmp_path)).text


def test_read_monitor__takes_the_later_line_of_an_epoch(tmp_path):
    lines = [
        {"ep": 0, "iter": 0, "loss": 1.0},
        {"ep": 0, LINE_KEY: {"uniformity": {"value": -1.0, "chance": -3.9}}},
        {"ep": 0, LINE_KEY: {"uniformity": {"value": -2.0, "chance": -3.9}}},  # of a resumed run
    ]
    log = tmp_path / "stdout.json"
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert read_monitor(log) == [(1, {"uniformity": (-2.0, -3.9)})]


def verdicts(page):
    kinds = {"same", "other", "unknown"}
    return [tag["class"] for tag in page.all("div") if tag.get("class") in kinds]


def test_write_report__names_the_classes_of_neighbours(tmp_path):
    page = Page(written(tmp_path))
    assert "Query cat" in page.text
    assert "PIRL neighbour 2 of query 1, dog, other class" in [t["alt"] for t in page.all("img")]


def test_write_report__takes_nothing_from_outside(tmp_path):
    text = written(tmp_path)
    page = Page(text)
    for _, attrs in page.tags:
        for name in ("src", "href", "xlink:href", "srcset", "data", "action"):
            assert attrs.get(name, "#").startswith(("#", "data:"))
    assert not page.all("script")
    assert not page.all("link")
    assert not re.search(r"@import|url\((?!['\"]?#)", text)
    # the names of XML namespaces are not addresses of anything that is loaded
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)


def test_write_report__escapes_what_it_is_given(tmp_path):
    text = written(tmp_path, settings={"<b>": "<script>alert(1)</script>"})
    assert "<title>PIRL on &lt;scenes&gt; &amp; photos</title>" in text
    assert "<script" not in text


@pytest.mark.parametrize(
    "accuracies",
    [
        {},
        {"random": None, "pirl": None},
        {"random": {}, "pirl": None},
        {"random": {"linear_top1": None, "knn_top1": None}, "pirl": {"linear_top1": None}},
    ],
)
def test_write_report__without_labels(tmp_path, accuracies):
    sample = Neighbors(picture(20), "", [(picture(21), "")], [(picture(22), "")])
    page = Page(written(tmp_path, results={**RUN, **accuracies}, neighbors=[sample]))
    assert "These images have no labels" in page.text
    assert "%" not in page.text
    assert "class as the query" not in page.text
    assert verdicts(page) == ["unknown", "unknown"]
    assert len(page.all("img")) == 3 + 3
    assert len(page.all("svg")) == 2


def test_write_report__one_network_alone_is_not_called_unlabelled(tmp_path):
    page = Page(written(tmp_path, results={**RUN, "random": None, "pirl": {"knn_top1": 50.0}}))
    assert "measured for both networks (found: pirl knn_top1)" in page.text
    assert "no labels" not in page.text


def test_write_report__one_metric_alone(tmp_path):
    some = {"random": {"knn_top1": 30.0}, "pirl": {"knn_top1": 41.0, "linear_top1": None}}
    page = Page(written(tmp_path, results={**RUN, **some}))
    assert "+11.0 points" in page.text
    assert "Linear probe" not in page.text


def test_write_report__a_speed_that_was_not_measured_is_left_out(tmp_path):
    results = {"seed": 0, "epochs": 2, "images_per_s": 0.0, "seconds": 61}
    page = Page(written(tmp_path, results=results))
    assert "1 min 1 s" in page.text
    assert "images/s" not in page.text


def test_write_report__nothing_but_the_loss(tmp_path):
    page = Page(written(tmp_path, jigsaws=[], neighbors=[], settings={}))
    for heading in ("What the network sees", "Nearest neighbours The", "Settings", "Make this"):
        assert heading not in page.text


def test_write_report__a_diverged_run_is_said_to_be_one(tmp_path):
    curve = [(i, 5.0 if i < 90 else float("nan")) for i in range(100)]
    assert "10 logged losses are not finite" in Page(written(tmp_path, loss_curve=curve)).text


def test_write_report__replaces_a_page_only_when_the_new_one_is_whole(tmp_path):
    path = tmp_path / "report.html"
    write_report(path, report(title="first"))
    with pytest.raises(ValueError, match="empty"):
        write_report(path, report(loss_curve=[]))
    assert "<title>first</title>" in path.read_text(encoding="utf-8")
    write_report(path, report(title="second"))
    assert "<title>second</title>" in path.read_text(encoding="utf-8")


def test_write_report__chance_and_uncertainty(tmp_path):
    page = Page(written(tmp_path, num_classes=4, num_test=100))
    # 1.96 · √(0.4025 · 0.5975 / 100) = 9.6 points
    assert "40.2 ± 9.6 %" in page.text
    assert "The mark at 25.0 % is chance. ± is the 95 % interval of 100 test images" in page.text
    marks = [tag["style"] for tag in page.all("div") if tag.get("class") == "chance"]
    assert marks == ["left:25.00%"] * 4


def test_write_report__drawn_images_are_not_called_photos(tmp_path):
    drawn = Page(written(tmp_path, title="x", drawn=True))
    assert "photo" not in drawn.text.lower()
    assert "nine patches of the same image" in drawn.text
    assert "Photo" in Page(written(tmp_path)).text


def test_write_report__invariance_map_and_classes(tmp_path):
    page = Page(
        written(
            tmp_path,
            cosines={"random": ([0.1, 0.3], [0.1, 0.1]), "pirl": ([0.8, 0.9], [-0.1, 0.0])},
            feature_map=FeatureMap(picture(5), ["cat", "dog"], 40),
            by_class={"pirl": {"cat": 60.0, "dog": 50.0}, "random": {"cat": 55.0, "dog": 20.0}},
        )
    )
    assert "before training 0.20 of an image and its own jigsaw, 0.10 of" in page.text
    assert "after training 0.85 of an image and its own jigsaw, −0.05 of" in page.text
    assert "40 images, laid out by t-SNE" in page.text
    assert len(page.all("svg")) == 4
    assert "Map of 40 images by their features" in [tag["alt"] for tag in page.all("img")]
    heading = page.text.index("Accuracy by class")
    assert page.text.index("dog", heading) < page.text.index("cat", heading)  # it gained more


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_curve": []}, "loss curve is empty, expected at least one"),
        ({"results": {"seed": 0}}, r"lack \['epochs', 'images_per_s', 'seconds'\]"),
        (
            {"results": {**RUN, "random": {"knn_top1": 0.3}, "pirl": {"knn_top1": 101.0}}},
            "knn_top1 is 0.3 .* 101.0 .*percents",
        ),
        ({"jigsaws": [(picture(), picture(), [picture()] * 8)]}, "8 patches .* expected nine"),
        (
            {"jigsaws": [(picture(), picture(), [picture()] * 8 + [picture(size=5)])]},
            "9 patches of shapes .* one shape",
        ),
        (
            {"jigsaws": [(picture() / 255, picture(), [picture()] * 9)]},
            "dtype float64, expected uint8",
        ),
        (
            {"neighbors": [Neighbors(picture().T, "", [], [])]},
            r"shape \(3, 12, 12\) .* permute",
        ),
    ],
)
def test_write_report__refuses(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        write_report(tmp_path / "report.html", report(**changes))
    assert list(tmp_path.iterdir()) == []
