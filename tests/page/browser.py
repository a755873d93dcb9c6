"""Drives a real browser: Debian's Chromium without a window, by chromium-driver and the WebDriver protocol.

Every wait has a bound. Nothing but this machine is asked for anything.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request

from scenery import wait_until

BOUND_S = 30.0
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # The protocol's name of a reference to an element.
ENTER, ESCAPE, TAB, DOWN = "\ue007", "\ue00c", "\ue004", "\ue015"


class BrowserError(Exception):
    pass


class Browser:
    """One browser with one page. A context manager: leaving it ends the browser."""

    def __init__(self, width=1280, height=900, arguments=()):
        self._folder = tempfile.mkdtemp(prefix="semaphored-page-")
        self._driver = None
        self._session = None
        self._size = (width, height)
        self._arguments = list(arguments)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind, value, trace):
        self.close()

    def start(self):
        log = os.path.join(self._folder, "driver.log")
        with open(log, "wb") as out:
            self._driver = subprocess.Popen(
                ["chromedriver", "--port=0"], stdout=out, stderr=out, stdin=subprocess.DEVNULL)

        def port():
            with open(log, encoding="utf-8", errors="replace") as text:
                found = re.search(r"successfully on port (\d+)", text.read())
            return found and int(found.group(1))
        self._base = f"http://127.0.0.1:{self.wait(port, 'the driver listens')}"
        arguments = ["--headless", "--disable-gpu", "--disable-quic", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update",
                     "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--force-prefers-reduced-motion",
                     f"--window-size={self._size[0]},{self._size[1]}",
                     f"--user-data-dir={self._folder}/profile", *self._arguments]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # Chromium refuses root otherwise.
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments, "binary": shutil.which("chromium")}}}})
        self._session = answer["sessionId"]
        self._ask("POST", self._path("/timeouts"), {"script": 30000, "pageLoad": 30000})
        return self

    def close(self):
        if self._session is not None:
            try:
                self._ask("DELETE", self._path(""))
            except (BrowserError, OSError):
                pass
            self._session = None
        if self._driver is not None:
            self._driver.terminate()
            try:
                self._driver.wait(10)
            except subprocess.TimeoutExpired:
                self._driver.kill()
                self._driver.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- the protocol ----

    def _path(self, rest):
        return f"/session/{self._session}{rest}"

    def _ask(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self._base + path, data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise BrowserError(f"{value['error']}: {value['message']}") from None

    # ---- what tests do ----

    wait = staticmethod(wait_until)

    def go(self, url):
        self._ask("POST", self._path("/url"), {"url": url})

    def js(self, script, *arguments):
        """What the body of a function in the page returns."""
        return self._ask("POST", self._path("/execute/sync"), {"script": script, "args": list(arguments)})

    def find(self, selector, bound_s=BOUND_S):
        """The first visible element."""
        script = ("return [...document.querySelectorAll(arguments[0])]"
                  ".find((each) => each.checkVisibility()) ?? null")
        return self.wait(lambda: self.js(script, selector), f"{selector} is there", bound_s)

    def click(self, selector):
        """As a person does: the element must be visible, enabled and not covered."""
        self.wait(lambda: not self.js("return arguments[0].disabled", self.find(selector)),
                  f"{selector} is enabled")
        self._ask("POST", self._path(f"/element/{self.find(selector)[ELEMENT]}/click"), {})

    def type(self, selector, text, clear=True):
        element = self.find(selector)[ELEMENT]
        if clear:
            self._ask("POST", self._path(f"/element/{element}/clear"), {})
        self._ask("POST", self._path(f"/element/{element}/value"), {"text": text})

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", self._path("/actions"),
                  {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def text(self, selector):
        """The text that is seen; "" if no such element is there."""
        return self.js("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def texts(self, selector):
        return self.js("return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)",
                       selector)

    def wait_text(self, selector, text, bound_s=BOUND_S):
        try:
            self.wait(lambda: text in self.text(selector), f"{selector} has {text!r}", bound_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it has {self.text(selector)!r}") from None

    def errors(self):
        """What the console has of errors since the last call, those of connections left out."""
        lines = self._ask("POST", self._path("/se/log"), {"type": "browser"})
        return [line["message"] for line in lines
                if line["level"] == "SEVERE" and line["source"] != "network"]

    def command(self, name, **parameters):
        """One of the browser's own protocol (DevTools)."""
        return self._ask("POST", self._path("/goog/cdp/execute"), {"cmd": name, "params": parameters})

    def set_scheme(self, scheme):
        """light or dark"""
        self.command("Emulation.setEmulatedMedia",
                     features=[{"name": "prefers-color-scheme", "value": scheme}])

    def set_size(self, width, height):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height,
                     deviceScaleFactor=1, mobile=False)

    def screenshot(self):
        """PNG."""
        return base64.b64decode(self._ask("GET", self._path("/screenshot")))
