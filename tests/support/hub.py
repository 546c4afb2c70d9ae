"""A stand-in for the Hugging Face hub on this machine: a server that keeps files and speaks as much as is needed."""

import base64
import contextlib
import hashlib
import http.server
import json
import threading
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextlib.contextmanager
def serving():
    """A server of one hub; `address` is where, `files` {repository: {name: content}}, `private` a set."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files, server.private, server.address = {}, set(), f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Hub(http.server.BaseHTTPRequestHandler):
    """The requests of `create_repo`, `upload_folder` and `hf_hub_download`."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.headers.get("Authorization") != "Bearer known":
            return self.answer(401, {"error": "no login"})
        words = urlsplit(self.path).path.strip("/").split("/")
        if words == ["api", "validate-yaml"]:
            return self.answer(200, {"errors": [], "warnings": []})
        if words == ["api", "repos", "create"]:
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            if "private" in (asked.get("visibility"), asked.get("private") and "private"):
                self.server.private.add(name)
            self.server.files.setdefault(name, {})
            return self.answer(200, {"url": f"{self.server.address}/{name}"})
        if words[:2] == ["api", "models"] and words[4] == "preupload":
            names = [each["path"] for each in json.loads(body)["files"]]
            files = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            return self.answer(200, {"files": files})
        if words[:2] == ["api", "models"] and words[4] == "commit":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.server.files["/".join(words[2:4])][line["value"]["path"]] = content
            commit = f"{self.server.address}/{words[2]}/{words[3]}/commit/{COMMIT}"
            return self.answer(200, {"commitOid": COMMIT, "commitUrl": commit})
        return self.answer(404, {"error": self.path})

    def do_GET(self):
        words = unquote(urlsplit(self.path).path).strip("/").split("/")
        name = "/".join(words[:2])
        if words[2:4] in (["resolve", "main"], ["resolve", COMMIT]) and words[-1] in self.server.files.get(name, {}):
            return self.answer(200, self.server.files[name][words[-1]])
        error = "EntryNotFound" if name in self.server.files else "RepoNotFound"
        return self.answer(404, {"error": self.path}, {"X-Error-Code": error})

    do_HEAD = do_GET

    def answer(self, status, content, headers=()):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        named = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT, "Content-Length": len(data)}
        for key, value in {**named, **dict(headers)}.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_):
        pass
