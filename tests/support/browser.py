"""A real browser without packages: Debian's chromium, spoken to over a pair of pipes (Chrome DevTools Protocol)."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PATH = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page of a headless chromium. `complaints` collects console errors, exceptions and refused or asked loads."""

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        down, self.out = os.pipe()
        self.into, up = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--disable-dev-shm-usage",
                 "--no-first-run", f"--user-data-dir={self.profile.name}", "about:blank"]  # fmt: skip
        # chromium reads commands from descriptor 3 and answers on 4
        shell = f'exec "$@" 3<&{down} 4>&{up}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", PATH, *flags], pass_fds=(down, up), stderr=subprocess.DEVNULL
        )
        os.close(down)
        os.close(up)
        self.buffer, self.number, self.session, self.complaints, self.asked = b"", 0, None, [], []
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
        """Send a command and wait for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self.number:
            self._heard(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self):
        while b"\0" not in self.buffer:
            chunk = os.read(self.into, 1 << 16)
            assert chunk, "chromium has gone"
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(line)

    def _heard(self, event):
        method, said = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(said["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not said["request"]["url"].startswith("data:"):
            self.asked.append(said["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, path, width, height, dark=False, query=""):
        """Load a file at a size in CSS pixels; a width below 600 is a phone."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, mobile=width < 600,
                  deviceScaleFactor=1)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.loaded = False
        self.call("Page.navigate", url=Path(path).resolve().as_uri() + query)
        while not self.loaded:
            self._heard(self._next())

    def run(self, script):
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")
