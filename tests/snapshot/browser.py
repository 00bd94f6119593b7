#!/usr/bin/env python3
# A driver for headless Chromium without packages. SPDX-License-Identifier: MIT OR Apache-2.0
"""Drives a headless Chromium by the DevTools protocol, through two pipes of NUL-terminated JSON messages."""

import base64
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--mute-audio", "--hide-scrollbars",
         "--remote-debugging-pipe"]


def find():
    """Returns the path of a Chromium, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Failure(Exception):
    """An error of a page or of the browser."""


class Browser:
    """A page of a browser. Records console errors and warnings, exceptions, and network requests."""

    def __init__(self, width=1400, height=900, dark=False, timeout=60.0):
        self.timeout = timeout
        self.next_id = 0
        self.buffer = b""
        self.errors = []
        self.requests = []
        self.profile = tempfile.mkdtemp(prefix="plinth-chromium-")
        their_in, self.out = os.pipe()
        self.input, their_out = os.pipe()

        def take_pipes():
            # The browser reads from descriptor 3 and writes to 4. The pipes may have these numbers, so move them out of the way.
            reader, writer = os.dup2(their_in, 100), os.dup2(their_out, 101)
            os.dup2(reader, 3)
            os.dup2(writer, 4)

        command = [find(), *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(command, preexec_fn=take_pipes, close_fds=False, start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(their_in)
        os.close(their_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for end in (self.out, self.input):
            os.close(end)
        # The browser runs in its own session, so this also ends the processes that it started.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def _message(self, until):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.input], [], [], max(0, until - time.monotonic()))
            if not ready:
                raise Failure("the browser does not respond")
            read = os.read(self.input, 1 << 20)
            if not read:
                raise Failure("the browser has ended")
            self.buffer += read
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        """Makes a call of the protocol and returns its result. Records the events that arrive meanwhile."""
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.timeout
        while True:
            response = self._message(until)
            if response.get("id") == self.next_id:
                if "error" in response:
                    raise Failure(f"{method}: {response['error']['message']}")
                return response["result"]
            self._record(response)

    def _record(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(argument.get("value")) for argument in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def check(self):
        """Fails if an error or warning was recorded."""
        self.run("0")
        if self.errors:
            raise Failure("\n".join(self.errors))

    def run(self, expression):
        """Returns the value of a JavaScript expression; waits for a promise."""
        response = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in response:
            details = response["exceptionDetails"]
            raise Failure(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return response["result"].get("value")

    def wait_for(self, expression, seconds=None):
        """Waits until an expression is true."""
        seconds = seconds or self.timeout
        until = time.monotonic() + seconds
        while not self.run(expression):
            if time.monotonic() > until:
                self.check()
                raise Failure(f"timed out after {seconds} s waiting for {expression}")
            time.sleep(0.05)

    def open(self, path):
        """Opens a file."""
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait_for("document.readyState === 'complete'")

    def frame(self):
        """Waits until pending changes are drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))")

    def mouse(self, kind, x, y, **more):
        """Sends a mouse event: a move, a press, a release or a turn of the wheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        """Clicks with the left button."""
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.frame()

    def key(self, key, code=None, number=0):
        """Presses and releases a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code or key, windowsVirtualKeyCode=number, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code or key, windowsVirtualKeyCode=number)
        self.frame()

    def screenshot(self, path):
        """Saves a screenshot of the page."""
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
