"""Weights at a hub: `hf upload` puts a folder of them there, and `timescales.load("hf:...")` gets them."""

import base64
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from urllib.parse import unquote, urlsplit

import pytest

from timescales.paths import ROOT

COMMIT = "0123456789abcdef0123456789abcdef01234567"


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


WEIGHTS = ROOT / "results" / "chien_table3" / "weights"
ID = "2e471ad7b7ea"
pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.slow


@pytest.fixture
def server():
    """A server of one hub; `address` is where, `files` {repository: {name: content}}, `private` a set."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.files, server.private, server.address = {}, set(), f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def call(server, tmp_path):
    """Run Python with a hub of this machine alone, and a login of it."""

    def run(*arguments, token="known"):
        environment = os.environ | {"HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": token}
        environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1", "HF_HUB_OFFLINE": "0"}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


LOAD = """
import timescales
from timescales.errors import ConfigError
try:
    model = timescales.load({name!r}, seed={seed}, where={where!r})
    print(model.card["id"], model.card["metrics"]["test/accuracy"], model.training)
except ConfigError as error:
    print("refused:", error)
"""


def test_weights_go_to_a_hub_and_come_back(call, server):
    """The command of docs/results.md."""
    assert "hf upload OWNER/REPOSITORY results/chien_table3/weights ." in (ROOT / "docs" / "results.md").read_text()
    status, _, err = call("-m", "huggingface_hub.cli.hf", "upload", "us/waves", str(WEIGHTS), ".", "--private")
    assert status == 0, err
    there = server.files["us/waves"]
    kept = {path.name for path in WEIGHTS.iterdir()}
    assert set(there) == kept
    assert all(there[name] == (WEIGHTS / name).read_bytes() for name in kept)
    assert server.private == {"us/waves"}
    where = {"task.sampling": "async", "task.negatives": "uniform"}
    status, out, err = call("-c", LOAD.format(name="hf:us/waves/plstm", seed=0, where=where))
    assert (status, out) == (0, f"{ID} 0.981 False\n"), err
    for name, words in (
        ("hf:us/waves/gru", "refused: us/waves/gru: no run has model=gru; there are chrono"),
        ("hf:us/nothing/plstm", "refused: hf:us/nothing: "),
        ("hf:waves", "refused: hf:waves: give hf:OWNER/REPOSITORY"),
    ):
        status, out, err = call("-c", LOAD.format(name=name, seed=0, where={}))
        assert (status, out.startswith(words)) == (0, True), (out, err)


@pytest.mark.parametrize("run_id", [ID, "1eb5a5d111d4"])
def test_the_lines_of_a_card_load_its_run(call, server, tmp_path, run_id):
    """In a checkout, from a copy of the folder, and from the hub; the folder's README gives the run by its model."""
    server.files["us/waves"] = {path.name: path.read_bytes() for path in WEIGHTS.iterdir()}
    shutil.copytree(WEIGHTS, tmp_path / "copy")
    card = (tmp_path / "copy" / f"{run_id}.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.S)
    first, *lines = code.strip().splitlines()[:1] + code.strip().splitlines()[2:]
    assert first == "import timescales"
    assert len(lines) == 3
    for line in lines:
        said = line.replace("FOLDER/", "copy/").replace("OWNER/REPOSITORY", "us/waves")
        place = f"import os; os.chdir({str(ROOT)!r}); " if "/" not in line.partition("#")[0] else ""
        status, out, err = call("-c", f"{place}{first}\n{said}\nprint(model.card['id'])")
        assert (status, out) == (0, f"{run_id}\n"), (line, err)
    readme = (WEIGHTS / "README.md").read_text()
    names = re.findall(r'timescales.load\("([^"]*)/MODEL", seed=0\)', readme)
    assert names == ["chien_table3", "FOLDER", "hf:OWNER/REPOSITORY"]


@pytest.mark.parametrize("target", ["os.system", "timescales.atlas.own.OwnLayers"])
def test_from_a_hub_only_classes_of_ours_are_made(call, server, tmp_path, target):
    """OwnLayers makes layers of a class in a file: it is for one's own."""
    from timescales.runs import weights

    tensors, about = weights.read(WEIGHTS / f"{ID}.safetensors")
    about["config"]["model"]["_target_"] = target
    entry = next(each for each in weights.read_index(WEIGHTS / "index.csv") if each.id == ID)
    content = {"index.csv": weights.index_text([entry]).encode(), f"{ID}.safetensors": weights.packed(tensors, about)}
    server.files["them/bad"] = content
    status, out, err = call("-c", LOAD.format(name="hf:them/bad", seed=0, where={}))
    assert status == 0, err
    assert out.startswith("refused: hf:them/bad names a class that is not of timescales")
