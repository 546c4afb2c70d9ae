"""What a release is made of: pinned versions, the version in each place, the workflow, the files."""

import contextlib
import re
import subprocess
import sys

import packaged
import pytest
import release
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import timescales
from timescales.paths import ROOT

PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
PINNED = {packaged.normalised(name): Version(version) for name, version in PINNED.items()}
EXTRAS = ("train", "hub", "torchtext", "imdb", "docs", "tensorboard", "launchers", "dev")


@pytest.mark.parametrize("extra", [None, *EXTRAS])
def test_what_the_project_needs_is_pinned_in_a_version_that_fits(extra):
    texts = packaged.PROJECT["optional-dependencies"][extra] if extra else packaged.PROJECT["dependencies"]
    for requirement in map(Requirement, texts):
        name = packaged.normalised(requirement.name)
        if name != packaged.PROJECT["name"]:
            assert PINNED[name] in requirement.specifier, requirement


def test_no_address_of_an_index_is_written_down():
    """Each user's pip has its own."""
    workflows = [f".github/workflows/{name}.yml" for name in ("ci", "release", "site")]
    for name in ("constraints.txt", "pyproject.toml", "Dockerfile", "conda/recipe.yaml", *workflows):
        assert "://" not in (ROOT / name).read_text(), name


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The files in which the version stands, in a folder of their own."""
    for name in release.VERSIONS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def test_one_version_in_all_places(places):
    assert release.version(f"v{timescales.__version__}") == timescales.__version__
    with pytest.raises(SystemExit, match=r"the tag is v9, the version 1\.\d\.\d: tag v1"):
        release.version("v9")
    changelog = places / "CHANGELOG.md"
    text = changelog.read_text()
    changelog.write_text(re.sub(r"^## 1", "## Unreleased\n\n### Added\n\n- x\n\n## 1", text, count=1, flags=re.M))
    with pytest.raises(SystemExit, match="has changes that are not released"):
        release.version()
    changelog.write_text(text.replace(f"## {timescales.__version__}", "## 9.0.0"))
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md says 9\.0\.0, CITATION\.cff says 1"):
        release.version()
    changelog.write_text(re.sub(r", \d{4}-", ", 1999-", text, count=1))
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md says 1999-.*, CITATION\.cff says 2"):
        release.version()


@pytest.mark.parametrize(("lines", "released"), [("\n\n  \n\t\n", True), ("\n\nx", False)], ids=["blank", "a word"])
def test_an_empty_unreleased_section_is_no_change(places, lines, released):
    changelog = places / "CHANGELOG.md"
    text, section = changelog.read_text(), f"## Unreleased{lines}"
    for changed in (f"{text.rstrip()}\n\n{section}", re.sub(r"^## 1", f"{section}\n## 1", text, count=1, flags=re.M)):
        changelog.write_text(changed)
        with contextlib.nullcontext() if released else pytest.raises(SystemExit, match="changes that are not released"):
            assert release.version() == timescales.__version__


WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())


def test_only_the_job_that_uploads_may_and_it_waits_for_the_others():
    jobs = WORKFLOW["jobs"]
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}  # `on`, in YAML
    assert {name for name, job in jobs.items() if job.get("permissions")} == {"publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert (jobs["publish"]["needs"], jobs["install"]["needs"]) == (["test", "install"], "build")
    called = yaml.safe_load((ROOT / jobs["test"]["uses"]).read_text())
    assert "workflow_call" in called[True]


@pytest.mark.slow
def test_the_workflow_up_to_the_upload(tmp_path):
    """The commands of its job `build`, but for the installation of what builds, and the check of another version."""
    pytest.importorskip("build")
    install, build = [step["run"] for step in WORKFLOW["jobs"]["build"]["steps"] if "run" in step]
    assert install.endswith("build hatchling")
    line = build.replace("python ", f"{sys.executable} ", 1).replace(" dist ", f" {tmp_path} ")
    environment = {"GITHUB_REF_NAME": f"v{timescales.__version__}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    files = [tmp_path / f"timescales_rnn-{timescales.__version__}{end}" for end in ("-py3-none-any.whl", ".tar.gz")]
    assert set(tmp_path.iterdir()) == set(files)
    with pytest.raises(SystemExit, match="empty the folder"):
        release.check(files, "9.0.0")


def test_the_conda_recipe_needs_what_the_project_needs():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    needs = {text.replace("torch", "pytorch") for text in packaged.PROJECT["dependencies"]}
    python = f"python{packaged.PROJECT['requires-python']}"
    assert {text.replace(" ", "") for text in recipe["requirements"]["run"]} == needs | {python}
    assert recipe["package"] == {"name": packaged.PROJECT["name"], "version": timescales.__version__}
    assert recipe["about"]["summary"] == packaged.PROJECT["description"]
