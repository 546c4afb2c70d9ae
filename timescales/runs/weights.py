"""Store the best weights of a run in one safetensors file, and load a model from it: `timescales.load`.

The header of a file has all that is needed to build the model (its configuration, and what it must know about its task)
and to describe it: `about`. index.csv lists the files of a folder. torch is only imported where it is used.
"""

from __future__ import annotations

import copy
import csv
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timescales import extras, paths
from timescales.config import Settings
from timescales.config.schema import is_of_identity
from timescales.errors import ConfigError
from timescales.files import csv_rows, csv_text
from timescales.runs import found, store
from timescales.runs.record import Record

if TYPE_CHECKING:
    from torch import Tensor

    from timescales.models.sequence import SequenceModel
    from timescales.tasks import Spec

FOLDER, INDEX, SUFFIX = "weights", "index.csv", ".safetensors"
KEY = "timescales"  # the only key of the header, so that the same weights give the same bytes
HUB = "hf:"  # the name of a repository on the Hugging Face hub begins with it
About = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """Hold a line of index.csv. settings: those of the run that its table varies. kept: whether its file is stored."""

    id: str
    seed: int
    size: str  # "paper" or the name of a rung
    bytes: int
    kept: bool
    settings: Settings

    @property
    def file(self) -> str:
        """Return the name of the file with the weights."""
        return f"{self.id}{SUFFIX}"


COLUMNS = tuple(each.name for each in fields(Entry))


def read_index(path: Path) -> list[Entry]:
    """Read the entries of an index.csv; [] if there is no file. Raises ConfigError for another file of this name."""
    try:
        return [
            Entry(
                x["id"], int(x["seed"]), x["size"], int(x["bytes"]), x["kept"] == "yes", dict(json.loads(x["settings"]))
            )
            for x in csv_rows(path)
        ]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise ConfigError(f"{path} is no list of weights that timescales wrote") from error


def index_text(entries: Sequence[Entry]) -> str:
    """Write entries as the text of an index.csv."""
    lines = [
        {**vars(each), "kept": "yes" if each.kept else "no", "settings": json.dumps(each.settings)} for each in entries
    ]
    return csv_text(lines, COLUMNS)


# --- a file -----------------------------------------------------------------------------------------------------------


def of_run(directory: Path) -> tuple[dict[str, Tensor], About]:
    """Read the best weights of a run's directory, and describe them. Raises ConfigError without weights.

    The task is built, because the description has what the model must know about it. Without its data this is left out.
    """
    from timescales.errors import MissingData
    from timescales.training import build
    from timescales.training.run import load_checkpoint

    record = Record.read(directory)
    content = load_checkpoint(directory / "best.pt", ("model",))
    if record is None or content is None:
        raise ConfigError(f"{directory} has no record.json and best.pt: give the directory of a run that has ended")
    config = {key: value for key, value in record.config.items() if is_of_identity(key)}
    try:
        spec = _plain(build.build_task(record.config, "cpu").spec)
    except MissingData:
        spec = None
    data = {"data": record.data} if spec is None and record.data else {}  # the model will be built from the data
    names = ("id", "seed", "status", "steps", "metrics", "parameters", "partial", "golden")
    about = {key: getattr(record, key) for key in names}
    trained = {key: getattr(record, key) for key in ("commit", "seconds", "machine", "versions")}
    best = asdict(record.best) if record.best else None
    return content["model"], {**about, **data, "best": best, "trained": trained, "config": config, "spec": spec}


def _plain(spec: Spec) -> Mapping[str, Any] | None:
    """Convert a spec for JSON; None if it has word vectors, which are data."""
    plain = {each.name: getattr(spec, each.name) for each in fields(spec)}
    if not isinstance(spec.embedding, int | None):
        return None
    return {**plain, "awd": asdict(spec.awd) if spec.awd else None}


def packed(tensors: Mapping[str, Tensor], about: About) -> bytes:
    """Return the bytes of a file."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return save(plain, {KEY: json.dumps(about, sort_keys=True)})


def read(path: Path) -> tuple[dict[str, Tensor], About]:
    """Read the tensors of a file and its description. Raises ConfigError for a file that this package did not write."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as opened:
            about = json.loads((opened.metadata() or {})[KEY])
            if not all(isinstance(about["config"][part]["_target_"], str) for part in ("model", "task")):
                raise ValueError("its configuration names no class")
            about["spec"], about["seed"]  # what `model_of` reads
            return {name: opened.get_tensor(name) for name in opened.keys()}, about  # noqa: SIM118  # no mapping
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        why = "it has no configuration" if isinstance(error, KeyError) else error
        raise ConfigError(f"{path} has no weights that timescales wrote: {why}") from error


def about_file(path: Path) -> About | None:
    """Read the description in a file of weights; None without a file or a description."""
    try:
        with path.open("rb") as opened:
            header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        return json.loads(header["__metadata__"][KEY])
    except (OSError, ValueError, KeyError, OverflowError, MemoryError):
        return None


def model_of(tensors: Mapping[str, Tensor], about: About, device: str = "cpu") -> SequenceModel:
    """Build the model of stored weights, in evaluation mode, with its `card`. Torch's generators do not change.

    Raises ConfigError if the weights are not those of the configuration, or if word vectors that belong to the data
    are not available or are others.
    """
    import torch

    from timescales.tasks.task import AWD, Spec, same_data
    from timescales.training import build

    config = {**copy.deepcopy(about["config"]), "engine": "auto", "device": device}
    spec = about["spec"]
    with torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
        if spec is None:
            task = build.build_task({**config, "seed": about["seed"]})
            if not same_data(about.get("data"), task.data):
                raise ConfigError(f"{about['id']} was trained on another {', '.join(task.data)}: restore that one")
            known = task.spec
        else:
            awd = spec["awd"]
            if awd is not None:
                awd = AWD(**{**awd, "cutoffs": None if awd["cutoffs"] is None else tuple(awd["cutoffs"])})
            known = Spec(**{**spec, "select": tuple(spec["select"]), "awd": awd})
        model = build.model_for(config, known)
    try:
        model.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise ConfigError(f"the weights of {about['id']} do not fit its configuration in this version") from error
    model.card = about
    return model.eval()


# --- by name ----------------------------------------------------------------------------------------------------------


def load(
    name: str | Path,
    seed: int = 0,
    where: Settings | None = None,
    results: str | Path | None = None,
    device: str = "cpu",
) -> SequenceModel:
    """Load the trained model of a run, at its best validation, in evaluation mode. Its `card` describes it.

    Args:
        name: one of
            "TABLE/MODEL": a run of a table in results/, such as "chien_table3/plstm";
            an id or a name of a run, a run's directory, or a file that ends with .safetensors;
            "FOLDER" or "FOLDER/MODEL": a folder with files of weights, as results/TABLE/weights has them;
            "hf:OWNER/REPOSITORY" or "hf:OWNER/REPOSITORY/MODEL": such a folder at the Hugging Face hub
            (pip install 'timescales-rnn[train,hub]'). Instead of MODEL, the id of a run takes that run.
        seed: of the run, where a table, folder or repository has several.
        where: settings of the run, {"task.sampling": "async"}. Of several runs that fit the first is taken, with a
            warning that names the others' settings.
        results: the folder of the tables; by default results/ of the checkout or, in an installation, of the current
            folder.
        device: where the model is put.

    Weights of a run that are not in results/ are taken from runs/ and results/archived. Raises ConfigError if there is
    no such run, or if its weights are not available.
    """
    text, place = str(name), Path(results or paths.results())
    if text.startswith(HUB):
        tensors, about = read(_of_hub(text.removeprefix(HUB), seed, where))
        modules = {about["config"][part]["_target_"].rpartition(".")[0] for part in ("model", "task")}
        if not modules <= {"timescales", "timescales.models", "timescales.tasks"}:
            raise ConfigError(f"{text} names a class that is not of timescales: download it, and load its folder")
        return model_of(tensors, about, device)
    path = _file(text, place)
    if path is None:
        parent, _, model = text.rpartition("/")
        if (place / parent / "runs.csv").is_file() and parent:
            path = _of_table(parent, model, seed, where, place)
        elif (folder := _folder(Path(text))) is not None:
            path = folder / _chosen(read_index(folder / INDEX), text, None, seed, where).file
        elif (folder := _folder(Path(parent or "."))) is not None:
            path = folder / _chosen(read_index(folder / INDEX), text, model, seed, where).file
        elif (run := found.find(text)) is not None:
            fix = "its own command goes on to its first validation, or with force=true trains it again"
            raise ConfigError(f"{run} has no weights yet, or no longer (best.pt): {fix}")
        elif lost := paths.lost_results(place):
            raise ConfigError(f"{text}: {lost}")
        else:
            raise ConfigError(
                f"there are no weights {text} in {place}: give TABLE/MODEL such as chien_table3/plstm, a run, a file "
                "or folder of weights, or hf:OWNER/REPOSITORY"
            )
    return model_of(*(of_run(path) if path.is_dir() else read(path)), device)


def _folder(path: Path) -> Path | None:
    """Return `path` if it is a folder of weights, or the folder of weights in it; None if there is neither."""
    return next((p for p in (path, path / FOLDER) if (p / INDEX).is_file()), None)


def _file(word: str, results: Path) -> Path | None:
    """Return a file of weights, or the directory of a run with best.pt, by its path, name or id."""
    if word.endswith(SUFFIX):
        return Path(word)
    committed = sorted(results.glob(f"*/{FOLDER}/{word}{SUFFIX}")) if found.is_id(word) else []
    if committed:
        return committed[0]
    directory = found.find(word)
    return directory if directory is not None and (directory / "best.pt").is_file() else None


def _of_table(table: str, model: str, seed: int, where: Settings | None, results: Path) -> Path:
    """Return the weights of a run of a table."""
    rows = [row for row in store.read_rows(results / table / "runs.csv") if row.status == "finished"]
    entries = [Entry(row.id, row.seed, row.rung, 0, _file(row.id, results) is not None, row.axes) for row in rows]
    entries = [each for each in entries if each.size == "paper"] or entries
    path = _file(_chosen(entries, f"{table}/{model}", model, seed, where).id, results)
    assert path is not None
    return path


def _of_hub(name: str, seed: int, where: Settings | None) -> Path:
    """Return the file of a run in a repository of the hub, downloaded into the hub's cache."""
    with extras.module():
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    words = name.split("/")
    if len(words) not in (2, 3):
        raise ConfigError(f"{HUB}{name}: give {HUB}OWNER/REPOSITORY or {HUB}OWNER/REPOSITORY/MODEL")
    repository, model = "/".join(words[:2]), words[2] if len(words) == 3 else None
    try:
        entries = read_index(Path(hf_hub_download(repository, INDEX)))
        return Path(hf_hub_download(repository, _chosen(entries, name, model, seed, where).file))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(f"{HUB}{repository}: {str(error).strip().splitlines()[0]}") from error


def _chosen(entries: Sequence[Entry], name: str, model: str | None, seed: int, where: Settings | None) -> Entry:
    """Return the entry of a run. Raises ConfigError if there is none, or none whose weights are available."""
    wanted: Settings = {**({"model": model} if model else {}), **(where or {})}
    fitting = [each for each in entries if each.id == model] or [
        each
        for each in entries
        if each.seed == seed and all(str(each.settings.get(key)) == str(value) for key, value in wanted.items())
    ]
    stored = [each for each in fitting if each.kept]
    if not stored and fitting:
        raise ConfigError(f"{name}: the weights of {fitting[0].id} are not available: train it, or give another seed")
    for key, value in wanted.items() if not stored else ():
        if str(value) not in (there := sorted({str(each.settings.get(key)) for each in entries})):
            raise ConfigError(f"{name}: no run has {key}={value}; there are {', '.join(there) or 'none'}")
    if not stored:
        seeds = ", ".join(map(str, sorted({each.seed for each in entries if each.kept}))) or "none"
        raise ConfigError(f"{name} has no run with seed={seed} and {dict(wanted)}; seeds that have weights: {seeds}")
    if len(stored) > 1:
        first, keys = stored[0], sorted(stored[0].settings)
        varying = [key for key in keys if len({str(each.settings.get(key)) for each in stored}) > 1]
        shown = ", ".join(f"{key}={first.settings[key]}" for key in varying)
        line = (
            f"{len(stored)} runs of {name} fit; the first was loaded, {first.id} ({shown}): choose with where={{...}}"
        )
        warnings.warn(line, stacklevel=4)
    return stored[0]
