"""A real browser: headless Chromium, through its driver's WebDriver protocol."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs Debian's chromium and chromium-driver"
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver's key for an element


class Browser:
    """A browser session.

    Args:
        address: the driver's address.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        options = {
            "binary": CHROMIUM,
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"],
        }
        capabilities = {
            "alwaysMatch": {
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }
        }
        session = self._send("POST", "", capabilities=capabilities)
        self._address += f"/{session['sessionId']}"

    def _send(self, method: str, path: str, **body: Any) -> Any:
        request = urllib.request.Request(
            self._address + path,
            json.dumps(body).encode() if method == "POST" else None,
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self._send("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def open(self, page: Path, width: int = 1200, height: int = 1000, dark: bool = False) -> None:
        """Open a page in a window of this size, and wait until its map is drawn."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])
        self._send("POST", "/url", url=page.resolve().as_uri())
        self.run(
            "const done = arguments[0];"
            "const map = document.getElementById('map');"
            "const wait = () => !map || 'ready' in map.dataset ? done() : setTimeout(wait, 20);"
            "wait()",
            wait=True,
        )

    def run(self, script: str, *arguments: Any, wait: bool = False) -> Any:
        """Run JavaScript; with ``wait``, until it calls its last argument."""
        kind = "async" if wait else "sync"
        return self._send("POST", f"/execute/{kind}", script=script, args=arguments)

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def find(self, selector: str) -> dict[str, str]:
        """Return an element, for actions."""
        return self._send("POST", "/element", using="css selector", value=selector)

    def type(self, selector: str, text: str) -> None:
        """Type into an element."""
        identifier = self.find(selector)[_ELEMENT]
        self._send("POST", f"/element/{identifier}/value", text=text)

    def click(self, selector: str) -> None:
        """Click an element."""
        self._send("POST", f"/element/{self.find(selector)[_ELEMENT]}/click")

    def pointer(
        self, selector: str, x: float, y: float, *actions: str, kind: str = "mouse"
    ) -> None:
        """Move the mouse or a finger to a place in an element, from its left upper corner.

        Args:
            selector: the element.
            x: pixels from its left edge.
            y: pixels from its upper edge.
            *actions: what to do there, such as ``pointerDown`` and ``pointerUp``.
            kind: mouse or touch.
        """
        left, top = self._bring_into_view(selector)
        place = {"x": round(left + x), "y": round(top + y)}
        moves = [{"type": "pointerMove", "duration": 0, **place}]
        moves += [{"type": action, "button": 0} for action in actions]
        parameters = {"pointerType": kind}
        source = {"type": "pointer", "id": kind, "parameters": parameters, "actions": moves}
        self._send("POST", "/actions", actions=[source])

    def pinch(self, selector: str, x: float, y: float, start: float, end: float) -> None:
        """Hold one finger at a place in an element, and move another away from it or toward it.

        Args:
            selector: the element.
            x: pixels from its left edge.
            y: pixels from its upper edge.
            start: pixels to the right from the first to the second finger.
            end: the same at the end.
        """
        left, top = self._bring_into_view(selector)
        first = {"id": 0, "x": left + x, "y": top + y}
        for event, distance in (("Start", start), ("Move", (start + end) / 2), ("Move", end)):
            second = {**first, "id": 1, "x": first["x"] + distance}
            self.devtools(
                "Input.dispatchTouchEvent", type=f"touch{event}", touchPoints=[first, second]
            )
        self.devtools("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def _bring_into_view(self, selector: str) -> list[float]:
        """Scroll an element into view, and return its left and upper edge."""
        return self.run(
            "const element = document.querySelector(arguments[0]);"
            "element.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const box = element.getBoundingClientRect(); return [box.left, box.top]",
            selector,
        )

    def wheel(self, selector: str, pixels: int) -> None:
        """Turn the wheel over the middle of an element; positive scrolls down."""
        scroll = {"type": "scroll", "origin": self.find(selector), "x": 0, "y": 0}
        scroll |= {"deltaX": 0, "deltaY": pixels, "duration": 0}
        self._send("POST", "/actions", actions=[{"type": "wheel", "id": "w", "actions": [scroll]}])

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Return and forget the entries in a log, ``browser`` or ``performance``."""
        return self._send("POST", "/se/log", type=kind)

    def requests(self) -> list[str]:
        """Return the URLs that were requested since the last call, except for ``data:`` URLs."""
        events = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
        urls = [parameters["request"]["url"] for parameters in sent]
        return [url for url in urls if not url.startswith("data:")]

    def screenshot(self, file: Path, whole_page: bool = False) -> None:
        """Write a PNG."""
        image = self.devtools("Page.captureScreenshot", captureBeyondViewport=whole_page)
        file.write_bytes(base64.b64decode(image["data"]))

    def print(self, file: Path) -> None:
        """Write a PDF."""
        printed = self.devtools("Page.printToPDF", printBackground=False)
        file.write_bytes(base64.b64decode(printed["data"]))

    def close(self) -> None:
        """End the session."""
        self._send("DELETE", "")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start the driver and a browser, and end both afterward."""
    driver = subprocess.Popen(
        [str(DRIVER), "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert driver.stdout is not None
        for line in driver.stdout:
            if "started successfully on port" in line:
                port = line.rstrip(".\n").rpartition(" ")[2]
                break
        browser = Browser(f"http://127.0.0.1:{port}/session")
        yield browser
        browser.close()
    finally:
        driver.terminate()
        driver.wait()
