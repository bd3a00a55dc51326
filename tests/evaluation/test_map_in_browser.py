"""The map of images in headless Chromium: mouse, touch, keyboard, search, sizes, print."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.evaluation.embed_report import write_report
from pirl_plugin.evaluation.page import Report
from pirl_plugin.evaluation.pictures import choose_display, page_images
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.reading import Reading
from pirl_plugin.models.network_config import NetworkConfig
from tests.helpers.browser import needs_browser, open_browser

pytestmark = [needs_browser, pytest.mark.slow]

CANVAS = "#map canvas"
NAME = ".panel strong"
MARKUP = "<img src=x onerror=alert(1)>.png"
MARGIN = 28  # as in page.js
ENTER, ESCAPE, RIGHT = "\ue007", "\ue00c", "\ue014"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Write a page of 24 images in three classes; the eighth has markup in its name."""
    folder = tmp_path_factory.mktemp("photos") / ("long" * 30)
    rng = np.random.default_rng(0)
    for number in range(24):
        name = MARKUP if number == 7 else f"{number:02}.png"
        file = folder / "abc"[number // 8] / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(file)
    source = FolderSource(folder)
    display = choose_display(source, Reading())
    images = page_images(source, range(24), display)
    centers = torch.eye(3, 8).repeat_interleave(8, dim=0)
    features = centers + 0.2 * torch.from_numpy(rng.normal(size=(24, 8)))
    predicted = images.with_predictions(
        [7, 1], torch.tensor([1, 0]), torch.tensor([0.9, 0.8]), ["a", "b", "c"]
    )
    path = folder / "page.html"
    report = Report(path, "weights.torch", NetworkConfig(), display)
    write_report(report, predicted, features, torch.arange(24), "last")
    return path


@pytest.fixture(scope="module")
def running():
    with open_browser() as browser:
        yield browser


@pytest.fixture
def browser(running, page):
    """Open the page at 1,200 px, and require afterward that nothing was loaded or logged."""
    running.open(page)
    yield running
    assert set(running.requests()) <= {page.as_uri(), "about:blank"}
    assert running.log("browser") == []


def content(browser):
    return json.loads(browser.run("return document.getElementById('map-content').textContent"))


def place(browser, name):
    """Return an image's place on the unzoomed canvas."""
    data = content(browser)
    side = browser.run("return document.querySelector(arguments[0]).clientWidth", CANVAS)
    image = data["names"].index(name)
    places = np.array([data["x"], data["y"]])
    low = places.min(axis=1)
    high = places.max(axis=1)
    share = 0.5 + (places[:, image] - (low + high) / 2) / (high - low).max()
    return (MARGIN + share * (side - 2 * MARGIN)).tolist()


def pixels(browser, tmp_path):
    browser.screenshot(tmp_path / "page.png")
    return np.array(Image.open(tmp_path / "page.png").convert("L"))


def test_mouse__shows_names_links_neighbors_and_zooms(browser, tmp_path):
    browser.pointer(CANVAS, *place(browser, f"a/{MARKUP}"))
    panel = browser.text(".panel")
    assert panel.startswith(f"a/{MARKUP}\nclass: a\npredicted: b, 90 %\nNearest images")
    browser.pointer(CANVAS, 1, 1)
    assert browser.text(".panel") == "Point at an image, or tap it."
    unselected = pixels(browser, tmp_path)
    browser.pointer(CANVAS, *place(browser, "b/10.png"), "pointerDown", "pointerUp")
    browser.pointer(CANVAS, 1, 1)  # the selection stays
    assert browser.text(NAME) == "b/10.png"
    data = content(browser)
    near = [data["names"][other] for other in data["nearest"][data["names"].index("b/10.png")]]
    assert len(near) == 6
    assert [line for line in browser.text(".near").split("\n") if line] == near
    selected = pixels(browser, tmp_path)
    assert (selected != unselected).mean() > 0.01
    browser.click(".near button")
    assert browser.text(NAME) == near[0]
    browser.wheel(CANVAS, -400)
    zoomed = pixels(browser, tmp_path)
    assert (zoomed != selected).mean() > 0.02
    browser.click("[name=whole]")
    assert (pixels(browser, tmp_path) != zoomed).mean() > 0.02
    browser.click("[name=in]")
    browser.click("[name=out]")


def test_touch__selects_on_a_narrow_page(browser, page):
    browser.open(page, width=400)
    spot = place(browser, "c/20.png")
    browser.pointer(CANVAS, *spot, "pointerDown", "pointerUp", kind="touch")
    assert browser.text(NAME) == "c/20.png"


def test_touch__zooms_with_two_fingers(browser):
    """The map grows around the finger that rests."""
    names = content(browser)["names"]
    places = np.array([place(browser, name) for name in names])
    side = browser.run("return document.querySelector(arguments[0]).clientWidth", CANVAS)
    resting = int(np.abs(places - side / 2).max(axis=1).argmin())
    zoomed = places[resting] + 2.5 * (places - places[resting])
    is_inside = ((zoomed > MARGIN) & (zoomed < side - MARGIN)).all(axis=1)
    (moved, *_) = [image for image in np.flatnonzero(is_inside) if image != resting]
    browser.pinch(CANVAS, *places[resting], 40, 100)
    assert browser.text(".panel") == "Point at an image, or tap it."  # nothing is selected
    for image in (resting, moved):
        browser.pointer(CANVAS, *zoomed[image])
        assert browser.text(NAME) == names[image]


def test_keyboard__moves_selects_and_ends(browser):
    browser.run("document.querySelector(arguments[0]).focus()", CANVAS)
    browser.type(CANVAS, RIGHT)
    first = browser.text(NAME)
    browser.type(CANVAS, RIGHT)
    second = browser.text(NAME)
    assert first != second
    assert place(browser, second)[0] > place(browser, first)[0]
    browser.type(CANVAS, f"{ENTER}+++")
    assert browser.text(NAME) == second
    browser.type(CANVAS, f"0{ESCAPE}")
    assert browser.text(".panel") == "Point at an image, or tap it."
    browser.run("document.querySelector('.near, [name=in]').focus()")


def test_search_and_filters__find_and_hide_images(browser):
    browser.type("input[type=search]", "onerror")
    assert browser.text("output") == "1 of 24 found"
    browser.type("input[type=search]", ENTER)
    assert browser.text(NAME) == f"a/{MARKUP}"
    browser.click("[name=wrong]")  # predicted b
    assert browser.text("output") == "1 of 24 found"
    browser.click("[name=wrong]")
    browser.click(".legend label:nth-of-type(1) input")  # hides the class a
    assert browser.text("output") == "0 of 24 found"
    assert browser.text(".panel") == "Point at an image, or tap it."
    browser.click("[name=none]")
    browser.pointer(CANVAS, *place(browser, "b/10.png"))
    assert browser.text(".panel") == "Point at an image, or tap it."
    browser.click("[name=all]")
    browser.pointer(CANVAS, *place(browser, "b/10.png"))
    assert browser.text(NAME) == "b/10.png"


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_page__fits_its_window(width, dark, browser, page, tmp_path):
    browser.open(page, width=width, dark=dark)
    assert browser.run("return document.documentElement.scrollWidth") == width
    ground = np.median(pixels(browser, tmp_path)[:, :8])
    assert (ground < 60) == dark


def test_page__names_pictures_for_the_keyboard(browser):
    """A long name is cut, but shown in full where the focus is."""
    height = "return document.querySelector('.groups figcaption span').scrollHeight"
    assert browser.run(height) > 0
    browser.run("document.querySelector('.groups figure').focus()")
    cut = "const e = document.querySelector('.groups figcaption span');"
    assert browser.run(f"{cut} return e.scrollHeight === e.clientHeight")


def test_page__prints(browser, tmp_path):
    browser.print(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000  # with the map's pictures


def test_page__runs_no_other_script(browser, page):
    """The policy stops what a name might smuggle in."""
    text = page.read_text()
    planted = page.with_name("planted.html")
    planted.write_text(text.replace("</main>", "<script>window.planted = 1</script></main>"))
    browser.open(planted)
    assert browser.run("return window.planted") is None
    (refusal,) = browser.log("browser")
    assert "Content Security Policy" in refusal["message"]
    assert set(browser.requests()) <= {page.as_uri(), planted.as_uri(), "about:blank"}
