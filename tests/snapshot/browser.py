#!/usr/bin/env python3
# A headless Chromium without any package. SPDX-License-Identifier: MIT OR Apache-2.0
"""Drives a headless Chromium through its DevTools protocol, by two pipes: messages are JSON, and a NUL ends each."""

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
    """The path of a Chromium, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Failure(Exception):
    """What a page or the browser complained about."""


class Browser:
    """One page of a browser. A complaint on its console, an exception, and any request to a network are failures."""

    def __init__(self, width=1400, height=900, dark=False, timeout=60.0):
        self.timeout = timeout
        self.next_id = 0
        self.buffer = b""
        self.complaints = []
        self.requests = []
        self.profile = tempfile.mkdtemp(prefix="plinth-chromium-")
        their_in, self.out = os.pipe()
        self.input, their_out = os.pipe()

        def take_pipes():
            # The browser reads from descriptor 3 and writes to 4. The two may be 3 or 4 themselves: so by way of higher ones.
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
        # All that it started is in its session, which is this process's own.
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
                raise Failure("the browser does not answer")
            read = os.read(self.input, 1 << 20)
            if not read:
                raise Failure("the browser is gone")
            self.buffer += read
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        """Makes a call of the protocol and returns its result; what happens meanwhile is noted."""
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.timeout
        while True:
            answer = self._message(until)
            if answer.get("id") == self.next_id:
                if "error" in answer:
                    raise Failure(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(argument.get("value")) for argument in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def check(self):
        """Fails if anything was complained about."""
        self.run("0")
        if self.complaints:
            raise Failure("\n".join(self.complaints))

    def run(self, expression):
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise Failure(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def wait_for(self, expression, seconds=60.0):
        """Waits until an expression is true."""
        until = time.monotonic() + seconds
        while not self.run(expression):
            if time.monotonic() > until:
                self.check()
                raise Failure(f"{expression} does not come true")
            time.sleep(0.05)

    def open(self, path):
        """Opens a file."""
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait_for("document.readyState === 'complete'")

    def frame(self):
        """Waits until what was asked for is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))")

    def mouse(self, kind, x, y, **more):
        """A move, a press, a release or a turn of the wheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        """A click of the left button."""
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.frame()

    def key(self, key, code=None, number=0):
        """A key, pressed and released."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code or key, windowsVirtualKeyCode=number, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code or key, windowsVirtualKeyCode=number)
        self.frame()

    def screenshot(self, path):
        """A picture of the page."""
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
