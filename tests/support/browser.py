"""A real browser without Python packages: chromium, driven over two pipes by the Chrome DevTools Protocol."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PATH = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--disable-dev-shm-usage"]


class Browser:
    """One page of a headless chromium.

    `complaints` collects the errors and warnings of the console and the uncaught exceptions; `requests` collects the
    addresses that the page loads, its own data apart.
    """

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        down, self.out = os.pipe()
        self.into, up = os.pipe()
        flags = [*FLAGS, "--no-first-run", f"--user-data-dir={self.profile.name}", "about:blank"]
        # chromium reads commands from descriptor 3 and answers on 4.
        shell = f'exec "$@" 3<&{down} 4>&{up}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", PATH, *flags], pass_fds=(down, up), stderr=subprocess.DEVNULL
        )
        os.close(down)
        os.close(up)
        self.buffer, self.number, self.session = b"", 0, None
        self.complaints, self.requests = [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.profile.cleanup()

    def call(self, method, **parameters):
        """Send a command, wait for its answer and return the result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self.number:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self):
        """The next message."""
        while b"\0" not in self.buffer:
            chunk = os.read(self.into, 1 << 16)
            assert chunk, "chromium has ended"
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(line)

    def _note(self, event):
        """Keep what an event tells of the page."""
        method, details = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(details["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(details["args"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.complaints.append(details["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not details["request"]["url"].startswith("data:"):
            self.requests.append(details["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, path, width, height, dark=False, query=""):
        """Load a file in a window of a size in CSS pixels; a width below 600 is that of a phone."""
        size = {"width": width, "height": height, "mobile": width < 600, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.loaded = False
        self.call("Page.navigate", url=Path(path).resolve().as_uri() + query)
        while not self.loaded:
            self._note(self._next())

    def run(self, script):
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")
