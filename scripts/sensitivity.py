"""Do a table's conclusions survive other choices where the paper is silent? `python scripts/sensitivity.py TABLE`.

Each assumed setting that names other values (`try`) is changed one at a time, at tiny size. Writes
results/<table>/sensitivity.{csv,md}. Further arguments go to train.py: skip=committed, task.allow_partial=true.
--config-dir FOLDER, as for train.py, is for tables of one's own: what is found goes to FOLDER/results/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hydra.errors import ConfigCompositionException  # noqa: E402
from omegaconf.errors import OmegaConfBaseException  # noqa: E402

from timescales import errors, files, paths  # noqa: E402
from timescales.config import compose, identity, overrides  # noqa: E402
from timescales.papers import load, verdict  # noqa: E402
from timescales.papers.claims import judge  # noqa: E402
from timescales.papers.table import Run, expand, twin  # noqa: E402
from timescales.reports import markdown  # noqa: E402
from timescales.runs import record, store  # noqa: E402


def settings(table: dict[str, Any], composer: compose.Composer) -> list[tuple[str, Any]]:
    """The choices to try, one at a time: (key, value). One that changes no run of the tiny twin is left out."""
    assumed = table.get("assumed", {}).items()
    tries = [(key, value) for key, entry in assumed if key != "select" for value in entry.get("try", [])]  # see report
    base = [slug for _, slug in runs_of(table, composer, {})]
    return [(k, v) for k, v in tries if [slug for _, slug in runs_of(table, composer, {k: [v]})] != base]


def runs_of(table: dict[str, Any], composer: compose.Composer, narrow: dict[str, Any]) -> list[tuple[Run, str]]:
    """The tiny twin's runs under a setting, with their slugs; a model that does not have the setting stays as it is."""
    found = []
    for run in expand(table, "tiny"):
        axes = run.axes | {key: values[0] for key, values in narrow.items()}
        changed = Run(axes, [run.overrides[0], *(f"{key}={overrides.spell(value)}" for key, value in axes.items())])
        try:
            found.append((changed, identity.slug(composer(changed.overrides))))
        except (OmegaConfBaseException, ConfigCompositionException):  # no key of this model
            found.append((run, identity.slug(composer(run.overrides))))
    return found


def gather(table: dict[str, Any], composer: compose.Composer) -> dict[str, list[dict[str, Any]]]:
    """Rows of the tiny twin under each setting, from runs/ or as committed; by the setting's words."""
    path = paths.RESULTS / table["name"] / "sensitivity.csv"
    committed = {line["id"]: line for line in [*store.committed().values(), *store.read_rows(path)]}
    names = verdict.metrics(table)
    own = {key for run in expand(table, "tiny") for key in run.axes}
    found: dict[str, list[dict[str, Any]]] = {}
    for words, narrow in [
        ("as assumed", {}),
        *((f"{k}={markdown.say(v)}", {k: [v]}) for k, v in settings(table, composer)),
    ]:
        found[words] = []
        for run, slug in runs_of(table, composer, narrow):
            mine = record.read(paths.RUNS / slug)
            if mine is not None and mine["status"] in record.ENDED:
                line = store.row(mine, run.axes, "tiny", names)
            elif (known := committed.get(identity.id_of(slug))) is not None and known["status"] in record.ENDED:
                line = known
            else:
                continue
            # A setting that only one model has must not keep its runs from being compared with the others'.
            axes = {key: value for key, value in run.axes.items() if key in own or key not in narrow}
            found[words].append({**line, "axes": axes, "stale": store.stale(line)})
    return found


def page(table: dict[str, Any], found: dict[str, list[dict[str, Any]]]) -> str:
    """A row for each setting, a column for each claim of the tiny twin."""
    head, body = ["setting", "runs"], []
    for words, rows in found.items():
        claims = [judge(said, twin(table), rows) for said in twin(table)["claims"]]
        head[2:] = [c.text for c in claims]
        body.append([words, len(rows), *(f"{c.verdict}: {c.detail}" for c in claims)])
    name = table["name"]
    own = f"python scripts/sensitivity.py --config-dir FOLDER {name}"
    command = own if paths.user_folders() else f"make sensitivity TABLE={name}"
    return "\n".join([
        f"# {name}: does it hang on what the paper leaves open?", "",
        f"`{command}`: the tiny twin, one assumed setting changed at a time.", "",
        *markdown.grid(head, body), "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("overrides", nargs="*", default=[], help="for train.py; none that changes a run's numbers")
    parser.add_argument("--no-run", action="store_true", help="only write what the finished runs say")
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="one's own folder of configurations")
    options = parser.parse_args()
    if options.config_dir:
        paths.RESULTS = options.config_dir / "results"
    with compose.composing() as composer:
        try:
            table = load.table(options.table)
            if not table.get("tiny"):
                raise errors.ConfigError(
                    f"{options.table} has no tiny twin (its key `tiny`), on which choices are tried"
                )
        except errors.ConfigError as error:
            sys.exit(f"error: {error}")
        tries: list[list[str]] = [[]]
        for key, value in settings(table, composer):
            changed = [run.axes for run, _ in runs_of(table, composer, {key: [value]}) if run.axes.get(key) == value]
            models = dict.fromkeys(str(axes["model"]) for axes in changed)
            tries.append([f"{key}={overrides.spell(value)}", f"model={','.join(models)}"])
        for k, change in enumerate([] if options.no_run else tries):
            print(f"[{k + 1}/{len(tries)}] {' '.join(change) or 'as assumed'}", flush=True)
            own = [f"--config-dir={options.config_dir}"] if options.config_dir else []
            command = [sys.executable, str(ROOT / "train.py"), *own, f"table={table['name']}", "profile=tiny", *change]
            done = subprocess.run([*command, "logger=none", *options.overrides], check=False)
            if done.returncode not in (0, 1):  # 1: some runs failed
                sys.exit("interrupted: the same command continues")
        found = gather(table, composer)
    folder = paths.RESULTS / table["name"]
    folder.mkdir(parents=True, exist_ok=True)
    rows = {row["id"]: {k: v for k, v in row.items() if k != "stale"} | {"axes": json.dumps(row["axes"])}
            for rows in found.values() for row in rows}  # fmt: skip
    files.write_atomic(folder / "sensitivity.csv", store.rows_text(list(rows.values())).encode())
    text = page(table, found)
    files.write_atomic(folder / "sensitivity.md", text.encode())
    print(text)


if __name__ == "__main__":
    main()
