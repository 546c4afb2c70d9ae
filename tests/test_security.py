"""The line that SECURITY.md draws: nothing read is run, nothing leaves its folder, no secret is written."""

import ast
import functools
import io
import json
import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import synthetic
import torch
from quick import QUICK

from timescales import files, paths
from timescales.errors import ConfigError
from timescales.paths import ROOT
from timescales.tasks.data import cifar, imdb, mnist, places, text
from timescales.training import build
from timescales.training.run import load_checkpoint

OURS = [path for folder in ("timescales", "hydra_plugins", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))]
OURS += [ROOT / "train.py"]


@functools.cache
def calls(path):
    """Every call in a file: the name called, with its dots, and the call."""
    return [(ast.unparse(n.func), n) for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]


@pytest.fixture(scope="module", autouse=True)
def _calls_are_forgotten():
    """They take 30 MB."""
    yield
    calls.cache_clear()


def given(call, name):
    """An argument by keyword, as it is written; None if it is not given."""
    return next((ast.unparse(k.value) for k in call.keywords if k.arg == name), None)


# --- nothing read is run --------------------------------------------------------------------------------------------
def test_no_call_runs_what_it_is_given():
    forbidden = re.compile(
        r"(builtins\.)?(eval|exec|compile|__import__)|pickle\.loads?|.*\bdill\b.*|(joblib|marshal)\.loads?|os\.(system|popen)"
        r"|yaml\.(load|unsafe_load|full_load)(_all)?|torch\.(hub\..*|jit\.load)|(hydra\.utils\.)?(instantiate|get_method)"
        r"|.*\.read_pickle|shelve\.open"
    )
    found = {(p.name, name) for p in OURS for name, _ in calls(p) if forbidden.fullmatch(name)}
    # The examples of this repository's own pages; and bytes that the composer itself has made, which are in no file.
    assert found == {("notebooks.py", "exec"), ("notebooks.py", "compile"), ("compose.py", "pickle.loads")}


def test_torch_loads_weights_alone_and_numpy_no_objects():
    found = [(p.name, given(call, "weights_only")) for p in OURS for name, call in calls(p) if name == "torch.load"]
    assert found, "the test looks for the right name"
    assert {word for _, word in found} == {"True"}
    loads = [call for p in OURS for name, call in calls(p) if name in ("np.load", "numpy.load")]
    assert [ast.unparse(call) for call in loads if given(call, "allow_pickle") not in (None, "False")] == []


def test_no_command_goes_through_a_shell():
    run = re.compile(r"(subprocess\.)?(run|Popen|call|check_call|check_output|getoutput|getstatusoutput)")
    shells = [(p.name, ast.unparse(c)) for p in OURS for n, c in calls(p) if run.fullmatch(n) and given(c, "shell")]
    assert shells == []
    commands = [(p.name, c) for p in OURS for n, c in calls(p) if n.startswith("subprocess.") and c.args]
    strings = [(name, ast.unparse(c)) for name, c in commands if isinstance(c.args[0], ast.Constant | ast.JoinedStr)]
    assert strings == [], "commands are lists"


def test_the_one_unpickler_is_ours():
    """CIFAR-10 is published as pickles: `cifar._Plain` reads arrays and plain values (tests in test_digits.py)."""
    pickler = re.compile(r"\bpickle\.\w*(Unpickler|Pickler)\b(?!Error)")
    assert [p for p in OURS if pickler.search(p.read_text())] == [ROOT / "timescales" / "tasks" / "data" / "cifar.py"]


@pytest.mark.parametrize("content", [np.float64, os.system, Path("x"), torch.nn.Linear(1, 1)], ids=str)
def test_a_checkpoint_with_code_is_refused(tmp_path, content):
    torch.save({"model": content}, tmp_path / "last.pt")
    with pytest.raises(ConfigError, match="damaged"):
        load_checkpoint(tmp_path / "last.pt")


# --- what a configuration may name ----------------------------------------------------------------------------------
CODE = ("os.system", "torch.load", "torch.hub.load", "builtins.eval")
OTHERS = ("torch.nn.LSTM", "torch.optim.Adam", "timescales.training.build.build", "timescales.tasks.Copy")


@pytest.mark.parametrize(("group", "targets"), [("model", CODE + OTHERS), ("task", CODE), ("optimizer", CODE)])
def test_a_target_that_is_no_class_of_its_group_is_refused(group, targets):
    for target in targets:
        with pytest.raises(ConfigError, match=f"{target} is not a subclass of "):
            build.locate(group, target)


def test_a_nested_target_is_a_word_like_any_other(train, tmp_path):
    outcome = train(*QUICK, "logger=none", "model.forget_init={_target_:os.system,command:'touch was_here'}")
    assert outcome.status == 1
    assert not list(tmp_path.rglob("was_here"))


# --- archives and downloads -----------------------------------------------------------------------------------------
def test_a_tar_writes_nothing_and_its_links_are_not_followed(tmp_path):
    """Members would leave the folder, or are links or a device; one review is sound."""
    path = tmp_path / "in" / "aclImdb.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as tar:
        for name in ("../../up/train/pos/1.txt", f"{tmp_path}/abs/train/pos/2.txt", "aclImdb/train/pos/3.txt"):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"good"))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"aclImdb/train/neg/{ord(kind)}.txt")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    before = sorted(tmp_path.rglob("*"))
    assert {t for _, t in imdb.read(path)["train"]} == {"good"}
    assert sorted(tmp_path.rglob("*")) == before


def test_a_huge_member_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "LARGEST", 1000)
    path = synthetic.write_cifar(tmp_path / "cifar-10-python.tar.gz", 50, 10)
    with pytest.raises(ValueError, match=r"would have .* bytes.*fetch it again"):
        cifar.read(path)


def test_the_checksum_at_the_end_of_a_tar_is_read(tmp_path):
    path = synthetic.write_imdb(tmp_path / "aclImdb.tar.gz", 40, 20)
    data = path.read_bytes()
    path.write_bytes(data[:-8] + bytes(4) + data[-4:])
    with pytest.raises(ValueError, match="fetch it again"):
        imdb.read(path)


def test_archives_are_never_unpacked_whole():
    """`extractall` follows names out of its folder, without filter="data"; one member by a known name is safe."""
    found = [(p.name, ast.unparse(c)) for p in OURS for name, c in calls(p) if re.search(r"\.extract(all)?$", name)]
    assert found == [("glove.py", "archive.extract(FILE, folder)")]


def test_a_zip_is_read_in_memory(tmp_path):
    path = tmp_path / "text8.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../text8", "abc")
    assert text._read_text8(path) == b"abc"
    assert [p.name for p in tmp_path.iterdir()] == ["text8.zip"]


def test_downloads_go_over_tls_and_have_a_checksum():
    assert [p.name for p in OURS if re.search(r"\bhttp://\w", p.read_text())] == []
    urls = [c.url for c in (cifar.CORPUS, imdb.CORPUS, text.PTB, text.WIKITEXT2, text.TEXT8)]
    assert all(url.startswith("https://") for url in urls)
    key = "wandb.login(prompt=False, verify=False)"  # there it is the key that is not tried out, not the host
    loose = re.compile("_create_unverified_context|CERT_NONE|verify=False")
    assert [p for p in OURS if loose.search(p.read_text().replace(key, ""))] == []
    # Checksums: MNIST and CIFAR-10 have torchvision's md5, GloVe the archive's CRC, texts the digest of what they hold.
    assert all("digest" in c.counts for c in (mnist.CORPUS, text.PTB, text.PTB_CHARACTERS, text.WIKITEXT2))
    assert "tgz_md5" in (ROOT / "timescales" / "tasks" / "data" / "cifar.py").read_text()


# --- secrets --------------------------------------------------------------------------------------------------------
SECRET = "0123456789abcdef" * 2 + "01234567"


def test_a_key_is_in_no_file_of_a_run(train, tmp_path, monkeypatch):
    """W&B's key stands in the environment while an offline run is logged; nothing that is left holds it."""
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.setenv("MY_PASSWORD", SECRET)
    outcome = train(*QUICK, "logger=wandb", f"run_dir={tmp_path}/mine")
    assert outcome.status == 0, outcome
    assert SECRET not in outcome.out + outcome.err
    kept = [p for p in (tmp_path / "mine").rglob("*") if p.is_file()]
    assert len(kept) > 4
    assert [p.name for p in kept if SECRET.encode() in p.read_bytes()] == []


def test_an_interpolation_of_the_environment_is_refused(train, tmp_path, monkeypatch):
    """${oc.env:KEY} in a value would be resolved, and stand in the record and at W&B."""
    monkeypatch.setenv("MY_PASSWORD", SECRET)
    for wrong in (
        "++logger.table=${oc.env:MY_PASSWORD}",
        "task.layout='x${oc.env:MY_PASSWORD}'",
        "+paper.e=env task.layout='${oc.${paper.e}:MY_PASSWORD}'",
    ):
        outcome = train(*QUICK, "logger=csv", *wrong.split())
        assert outcome.status == 1, wrong
        assert "${oc.env:...} is for data_root and run_dir only" in outcome.err
        assert SECRET not in outcome.out + outcome.err
        assert not list((tmp_path / "runs").glob("*/record.json")), wrong
    monkeypatch.setenv("TIMESCALES_DATA", str(tmp_path))
    assert train(*QUICK, "logger=csv").status == 0


def test_the_shipped_configuration_reads_one_variable():
    found = {word for p in paths.conf().rglob("*.yaml") for word in re.findall(r"\$\{oc\.env:(\w+)", p.read_text())}
    assert found == {"TIMESCALES_DATA"}
    resolvers = {word for p in paths.conf().rglob("*.yaml") for word in re.findall(r"\$\{([\w.]+):", p.read_text())}
    assert resolvers <= {"oc.env", "run_dir", "if_paper", "lr_for", "matched"}


def test_the_record_holds_no_environment(train, tmp_path):
    assert train(*QUICK, "logger=csv", f"run_dir={tmp_path}/mine").status == 0
    record = json.loads((tmp_path / "mine" / "record.json").read_text())
    assert set(record) & {"environment", "env", "argv", "user", "hostname", "host"} == set()
    home = os.path.expanduser("~")
    assert home == "/" or f'"{home}' not in json.dumps({k: v for k, v in record.items() if k != "config"})


def test_no_secret_is_tracked():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    kind = re.compile(r"(api[_-]?key|token|password|secret)['\"]?\s*[:=]\s*['\"][A-Za-z0-9_\-]{20,}['\"]", re.I)
    small = [ROOT / name for name in tracked if name.endswith((".py", ".yaml", ".toml", ".md", ".sh", ".json"))]
    assert [p.name for p in small if p.is_file() and kind.search(p.read_text(errors="replace"))] == []


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
def test_files_are_as_private_as_the_umask_says(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        files.write_atomic(tmp_path / "record.json", b"{}")
    finally:
        os.umask(before)
    assert (tmp_path / "record.json").stat().st_mode & 0o777 == mode
