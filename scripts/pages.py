"""Write what is generated: `python scripts/pages.py [PART ...]`; --check compares, and writes nothing.

    matched     conf/matched.yaml, the units with which models have equally many parameters
    stub        timescales/__init__.pyi, the signatures for editors and type checkers
    docs        parts of docs/models, docs/tasks and dropin.md, from conf/, docstrings, results/bench, the
                tasks and the list of uses in tests/dropin; the pictures of the tasks. The rest is written by hand
    coverage    a part of docs/coverage.md: what judges each table and figure of the papers
    atlas       docs/atlas.md, a block of docs/models, the atlas's tables and pictures, the scores that the package has
    notebooks   docs/notebooks, from the tour and the tutorial, which is run

Reports have their own script, report.py, which reads runs.
"""

import argparse
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / folder) for folder in ("tests/dropin", "tests/support"))]

import atlas  # noqa: E402
import coverage_page  # noqa: E402
import matched  # noqa: E402
import notebooks  # noqa: E402
import sample_data  # noqa: E402
import stub  # noqa: E402
import task_pages  # noqa: E402
from tqdm import tqdm  # noqa: E402
from uses.registry import GROUPS, USES, Differs, Refused, Use  # noqa: E402

import timescales  # noqa: E402
from timescales.config import folders  # noqa: E402
from timescales.errors import ConfigError  # noqa: E402
from timescales.files import csv_rows, write_atomic  # noqa: E402
from timescales.nn import registry  # noqa: E402
from timescales.nn.cells.gates import MECHANISMS  # noqa: E402
from timescales.papers import load  # noqa: E402
from timescales.papers.table import Grid  # noqa: E402
from timescales.reports import cards  # noqa: E402
from timescales.reports.markdown import MARK, grid, put  # noqa: E402

DOCS = ROOT / "docs"
CONF = ROOT / "conf"

# The rows of results/bench that time a model, where these are not named after it or its class.
TIMED = {
    "lstm": ("fused LSTM", "eager LSTM", "loop LSTM"),
    "chrono": ("fused LSTM", "eager LSTM"),
    "mts": ("fused LSTM", "eager LSTM"),
    "ur": ("fused UR",),
    "plstm": ("fused coupled", "fused separate", "eager coupled", "loop pLSTM"),
    "gated": ("lstm c", "lstm o", "lstm or", "lstm ur", "lstm om", "lstm um", "gru ur", "gru om"),
    "gru": ("GRU", "nn.GRU"),
}
FUSED = "C++ (`engine=fused`)"
# What a row times, if not the layer by the fused engine.
VARIANTS = {
    "nn.GRU": "`torch.nn.GRU`",
    "RMC": "PyTorch (`engine=eager`)",
    **{f"{core} {gate}": f"`core={core}`, `gate={gate}`" for core in ("lstm", "gru") for gate in MECHANISMS},
    "eager LSTM": "PyTorch (`engine=eager`)",
    "loop LSTM": "LSTM, Python loop",
    "fused UR": f"{FUSED}, `gate=ur`",
    "fused separate": f"{FUSED}, `coupled=False`",
    "eager coupled": "PyTorch (`engine=eager`)",
    "loop pLSTM": "pLSTM, Python loop",
}
SECTION = {registry.FIVE: "layer", registry.SCAN: "scan"}  # of the benchmark, by family; else "gates"
SIZE = ("S", "B", "I", "H")  # of a row of the benchmarks: steps, batch, inputs, hidden
CONFIGS = ("A", "B", "B512", "C", "D", "F", "S=1,000", "S=2,000", "S=10,000")


def model_blocks(name: str) -> dict[str, Callable[[], str]]:
    """Return the blocks that a model's page may have."""
    return {
        "reference": lambda: reference(registry.BY_NAME[name]),
        "settings": lambda: settings(CONF / "model" / f"{name}.yaml", "model"),
        "tables": lambda: tables(lambda runs: name in cards.models(runs)),
        "speed": lambda: speed(name),
    }


def model_list() -> str:
    """Write the table of docs/models/README.md, from the docstrings of the layers."""
    body = []
    for model in registry.BY_NAME.values():
        text = " ".join((layer_of(model).__doc__ or "").split())
        forgets, source = re.split(r" Source: ", text.split(" Forgets: ")[1])
        source = re.split(r"\.(?: Differs|$)|, listing", source)[0]
        body.append([f"[{model.name}]({model.name}.md)", f"`{model.layer}`", forgets.rstrip("."), source])
    return "\n".join(grid(["model", "class", "how a unit forgets", "paper"], body))


NEW_PAGE = """# {model.name}: {model.layer}

{first}{note}

## Reference

<!-- reference: written by scripts/pages.py -->
<!-- /reference -->

## Use

```python
from {package} import {model.layer}

rnn = {model.layer}(1, 128)
output, state = rnn(x)
```

```bash
python train.py model={model.name} task=copy
```

## Settings

<!-- settings: written by scripts/pages.py -->
<!-- /settings -->

## Papers and tables

<!-- tables: written by scripts/pages.py -->
<!-- /tables -->
"""
SPEED_PART = """
## Speed

<!-- speed: written by scripts/pages.py -->
<!-- /speed -->
"""
BASELINE_NOTE = """

It is not made of cells, and is here for comparison. It has no
`timescales()` and no gates that could be seen: an analysis that needs them says so in one line. It takes every task but
the language models of words (`ptb_word`, `wt2`, `wt103`), whose dropouts are for layers of cells."""


def new_page(model: registry.Model) -> str:
    """Write the first version of a model's page: generated blocks, with room for prose between them."""
    doc = layer_of(model).__doc__ or ""
    first = doc.strip().splitlines()[0]
    if model in registry.BASELINES:
        return NEW_PAGE.format(model=model, first=first, package="timescales.models", note=BASELINE_NOTE)
    return NEW_PAGE.format(model=model, first=first, package="timescales", note="") + SPEED_PART


def task_blocks(name: str) -> dict[str, Callable[[], str]]:
    """Return the blocks that a task's page may have."""
    return {
        "example": lambda: task_pages.example(name),
        "facts": lambda: task_pages.facts(name),
        "settings": lambda: settings(CONF / "task" / f"{name}.yaml", "task"),
        "recipes": lambda: task_pages.recipes(name),
        "tables": lambda: tables(lambda runs: name in cards.values(runs, "task")),
    }


def dropin_blocks() -> dict[str, Callable[[], str]]:
    """Return the blocks of docs/dropin.md: what tests/dropin does with every layer, and what it expects."""
    only_here = [use for use in USES if not use.works() and not isinstance(use.torch, Refused)]
    reasons = dict.fromkeys(use.why for use in only_here)
    return {
        "clients": clients,
        "different": lambda: "\n".join(grid(["use", "here", "why"], [together(only_here, why) for why in reasons])),
        "working": working_uses,
    }


def together(uses: list[Use], why: str) -> list[str]:
    """Write a table row of the uses that raise an error for one reason."""
    found = [use for use in uses if use.why == why]
    return ["<br>".join(use.title() for use in found), "<br>".join(use.ours() for use in found), why]


def clients() -> str:
    """Write a table of other packages' tests, from results/clients.md."""
    text = (ROOT / "results" / "clients.md").read_text()
    rows = [line.split(" | ") for line in re.findall(r"^\| (.*) \|$", text.split("\nMilliseconds")[0], re.M)[2:]]
    head = ["package", "tests that reach a layer, and pass with torch's", "ours", "accelerated"]
    return "\n".join(grid(head, [[package, torchs, *more] for package, _, torchs, *more in rows]))


def working_uses() -> str:
    """List the uses that work, by group, with a note if torch's own layers refuse them."""
    parts = []
    for title in GROUPS:
        found = [use for use in USES if use.group == title and use.works()]
        parts += [f"**{title}**", *(f"- {use.title()}{torchs_note(use.torch)}" for use in found), ""]
    return "\n".join(parts).strip()


def torchs_note(outcome: Any) -> str:
    """Say what torch's own layers do with a use that works here; "" if it works there, too."""
    if isinstance(outcome, Refused):
        return " (refused by torch's layers)"
    return f" (torch's layers: {outcome.how})" if isinstance(outcome, Differs) else ""


def reference(model: registry.Model) -> str:
    """Copy the docstrings of a model's cells and of their common base class."""
    kinds = [getattr(timescales, cell) for cell in model.cells] or [layer_of(model)]
    common = [kinds[0].__mro__[1]] if len(kinds) > 1 else []
    return "\n\n".join(f"```text\n{kind.__name__}: {_dedented(kind.__doc__)}\n```" for kind in common + kinds)


def layer_of(model: registry.Model) -> type:
    """Return a model's class."""
    return getattr(importlib.import_module(model.module), model.layer)


def _dedented(text: str | None) -> str:
    first, _, rest = (text or "").strip().partition("\n")
    return first + "\n" + "\n".join(line.removeprefix("    ") for line in rest.splitlines())


def settings(path: Path, group: str) -> str:
    """Write a configuration file as a table of keys, defaults and comments."""
    text, above = path.read_text(), group if group == "model" else ""
    comments = (line for line in text.splitlines() if line.startswith("#") and "@" not in line)
    comment = " ".join(line.removeprefix("# ") for line in comments)
    body = []
    for line in text.splitlines():
        if found := re.match(r"^  - override /(\w+): ([^#]+?)\s*(?:# .*)?$", line):
            body.append([f"`{found[1]}`", _by_paper(found[2]), ""])
        elif found := re.match(r"^(\w+):$", line):
            above = found[1]
        elif (found := re.match(r"^ *(\w+): (.*?)(?:\s+# (.*))?$", line)) and found[1] not in ("_target_", "name"):
            body.append([f"`{above}.{found[1]}`", f"`{task_pages.plain(found[2])}`", found[3] or ""])
    return "\n".join([*([comment, ""] if comment else []), *grid(["setting", "default", ""], body)])


def _by_paper(value: str) -> str:
    """Write a group's default. If it depends on the paper, as ${if_paper:gu,adam,rmsprop}, say so in words."""
    if found := re.fullmatch(r"\$\{if_paper:(\w+),(\w+),(\w+)\}", value):
        return f"`{found[3]}`; `{found[2]}` with `paper={found[1]}`"
    return f"`{value}`"


def tables(fits: Callable[[Sequence[Grid]], bool]) -> str:
    """List the tables some of whose runs fit, with what they show and where it is printed."""
    body = []
    for table in map(table_of, folders.choices("table")):
        if fits(table.runs):
            has_page = (ROOT / "results" / table.name / "table.md").is_file()
            link = f"[{table.name}](../../results/{table.name}/table.md)" if has_page else table.name
            body.append([link, table.title, table.source])
    if not body:
        return "No table of the papers uses it."
    return "\n".join(grid(["table", "task and metric", "in the paper"], body))


table_of = functools.cache(load.table)


def speed(name: str) -> str:
    """Write a table of the time of a training step, divided by that of torch.nn.LSTM, for each measured processor."""
    model, body = registry.BY_NAME[name], []
    section = SECTION.get(model.family, "gates")
    measured = list(_measured(section))
    seen = dict.fromkeys(row["variant"] for _, rows in measured for row in rows)
    timed = TIMED.get(name) or [each for each in seen if each.lower() in (name, model.layer.lower())]
    for link, rows in measured:
        for config in CONFIGS:
            own = {row["variant"]: row for row in rows if row["config"] == config}
            if own.keys() & set(timed):
                sizes = [next(iter(own.values()))[key] for key in SIZE]
                ratios = [f"{float(own[each]['ratio']):.2f}" if each in own else "" for each in timed]
                body.append([link, *sizes, *ratios])
    if not body:
        return f"Not measured yet: `python scripts/bench/bench.py --only {section}` does."
    head = ["processor", "steps", "batch", "input", "hidden", *(VARIANTS.get(each, FUSED) for each in timed)]
    text = SPEED_TEXT.format(loop=LOOP_TEXT if any("Python loop" in column for column in head) else "")
    return "\n".join([text, "", *grid(head, body)])


def _measured(section: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """For each processor that was measured: a link to its page, and the rows of a section of its benchmark."""
    for path in sorted((ROOT / "results" / "bench").glob("*-threads.csv")):
        machine = path.with_suffix(".md").read_text().splitlines()[0].removeprefix("# A training step on ")
        link = f"[{machine.replace(' 1 threads', ' 1 thread')}](../../results/bench/{path.stem}.md)"
        wanted = (section, "all", "0")
        yield link, [row for row in csv_rows(path) if (row["section"], row["loss"], row["flush"]) == wanted]


SPEED_TEXT = """\
Time of one training step of one layer (forward and backward), divided by that of `torch.nn.LSTM` in the same benchmark
run. Below 1 is faster than `torch.nn.LSTM`. {loop}[train.md](../train.md) describes the engines."""
LOOP_TEXT = "A *Python loop* loops over the time steps in Python, as most public\nimplementations do. "


def page(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """Replace the generated blocks of a page. Raises KeyError for a mark that no block has."""
    marked = re.findall(MARK.format(r"(\w+)", atlas.page.BY), text)
    return put(text, {name: blocks[name]() for name in marked if name != "atlas"}, atlas.page.BY)  # a part of its own


def pages() -> dict[Path, dict[str, Callable[[], str]]]:
    """Return every page with generated blocks, and the blocks that it may have."""
    models = {DOCS / "models" / f"{name}.md": model_blocks(name) for name in registry.BY_NAME}
    tasks = {DOCS / "tasks" / f"{name}.md": task_blocks(name) for name in task_pages.EXAMPLES}
    more = {"dropin.md": dropin_blocks()}
    more |= {"models/README.md": {"models": model_list}}
    return models | tasks | {DOCS / name: blocks for name, blocks in more.items()}


def docs(check: bool) -> Iterator[tuple[Path, str | None]]:
    """Yield the pages with generated blocks and their texts, and the pictures of the tasks, which are not compared."""
    with sample_data.folder():
        for path, blocks in tqdm(pages().items(), leave=False):
            yield path, page(path.read_text() if path.is_file() else new_page(registry.BY_NAME[path.stem]), blocks)
        for task in task_pages.EXAMPLES:
            if not check:
                task_pages.draw(task)
            yield DOCS / "tasks" / "img" / f"{task}.png", None


# What is written, in this order: each part yields files with their texts, or None for a picture that must be there.
PARTS: dict[str, Callable[[bool], Any]] = {
    "matched": matched.texts,
    "stub": stub.texts,
    "docs": docs,
    "coverage": coverage_page.texts,
    "atlas": atlas.texts,
    "notebooks": notebooks.texts,
}


def stale(texts: Callable[[bool], Any]) -> list[Path]:
    """List the files of a part that are not what they should be."""
    return [path for path, text in texts(True) if not is_as(path, text)]


def is_as(path: Path, text: str | None) -> bool:
    """Tell whether a file has this content; for a picture (None), whether it exists."""
    return path.is_file() and (text is None or path.read_text() == text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not what it should be")
    parser.add_argument("--price", action="store_true", help="of the atlas: time each kind of run that is not known")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    parts, wrong = PARTS | ({"atlas": functools.partial(atlas.texts, price=True)} if options.price else {}), []
    try:
        for part in options.parts or PARTS:
            if options.check:
                wrong += stale(parts[part])
                continue
            for path, text in parts[part](False):
                if text is not None and not is_as(path, text):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_atomic(path, text.encode())
                    print(f"written: {os.path.relpath(path, ROOT)}")
    except ConfigError as error:  # such as data that are not here
        sys.exit(f"error: {error}")
    if wrong:
        sys.exit(
            f"out of date: {', '.join(os.path.relpath(path, ROOT) for path in wrong)}; run python scripts/pages.py"
        )


if __name__ == "__main__":
    main()
