"""Write the generated parts of the tasks' pages: an example, facts, the papers' recipes. `pages.py` calls it."""

import math
import re
from pathlib import Path
from typing import Any

import examples
from omegaconf import OmegaConf

from timescales import plotting
from timescales.config import folders
from timescales.errors import dotted
from timescales.reports.markdown import grid

ROOT = Path(__file__).resolve().parents[1]
DOCS, CONF = ROOT / "docs", ROOT / "conf"

SMALL = ("task.train_size=20", "task.valid_size=10", "task.test_size=10")
PARTIAL = "task.allow_partial=true"
# What makes a task's example short enough for a page, and how many sequences are shown as text.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "copy": ("task.T=12",),
    "variable_copy": ("task.low=2", "task.high=12"),
    "adding": ("task.T=50",),
    "frequency": (),
    "dyck2": (),
    "linear_functional": ("task.T=50", "task.tau=2"),
    "n_parity": ("task.N=6",),
    "n_delayed_match": ("task.N=6",),
    "delayed_match": ("task.delay=20",),
    "program": ("task.length=3", "task.nesting=2"),
    "selective_copy": ("task.T=20", "task.length=6", "task.alphabet=10"),
    "word_problem": ("task.group=S3", "task.T=12"),
    "mqar": ("task.T=24",),
    "contextual_match": ("task.delay=20",),
    "rescaling": ("task.unit=2", "task.lead=2"),
    "smnist": SMALL,
    "pmnist": SMALL,
    "scifar": (*SMALL, PARTIAL),
    "ptb_char": (PARTIAL, "task.length=40"),
    "text8": (PARTIAL, "task.length=40"),
    "ptb_word": (PARTIAL, "task.length=20"),
    "wt2": (PARTIAL, "task.length=20", "task.batch_size=20"),
    "wt103": (PARTIAL, "task.length=20", "task.batch_size=20"),
    "imdb": (*SMALL, PARTIAL, "task.steps=25"),
    "text": ("task.data=book.txt", "task.length=40"),
    "series": (
        *("task.data=tides.csv", "task.time=hour", "task.id=place", "task.inputs=[height,pressure]"),
        *("task.target=height", "task.window=20", "task.horizon=4", "task.season=16"),
    ),
}
FILE_TASKS = ("text", "series")  # their sizes and chance are those of a user's file


def command(task: str) -> list[str]:
    """Return the overrides of a task's example."""
    return [f"task={task}", *EXAMPLES[task]]


def example(task: str) -> str:
    """Write the command of a task's example, its picture, and one sequence as text."""
    made, _ = examples.make_task(command(task))
    text = examples.printed(made, examples.examples(made, 3)[0])
    shell = f"python scripts/examples.py {' '.join(command(task))} -n 3 --png docs/tasks/img/{task}.png"
    picture = f"![{caption(task)}](img/{task}.png)"
    words = f"One of them as text; {scored(task)}:"
    return f"{picture}\n\n```bash\n{shell}\n```\n\n{words}\n\n```text\n{text}\n```"


def caption(task: str) -> str:
    """Return the title of a task's picture."""
    return f"Three example sequences of the {task} task"


def scored(task: str) -> str:
    """Return which steps the row `scored` of an example marks; see `examples.scored`."""
    if task in ("linear_functional", "ptb_char", "text8", "ptb_word", "wt2", "wt103", "text", "series"):
        return "`scored` marks the steps that count in the loss"
    if task == "program":
        return "the digits of the answer count in the accuracy"
    more = " (the loss counts every step by default)" if task in ("copy", "variable_copy") else ""
    return f"`scored` marks the steps that count in the accuracy{more}"


def draw(task: str) -> None:
    """Draw a task's example into docs/tasks/img."""
    made, node = examples.make_task(command(task))
    found = examples.examples(made, 3)
    path = DOCS / "tasks" / "img" / f"{task}.png"
    path.parent.mkdir(exist_ok=True)
    plotting.write(lambda figure: examples.draw(figure, made, node, found), path, caption(task))


def facts(task: str) -> str:
    """Write a table of what a model must know about a task at its defaults, and the loss at chance."""
    made, _ = examples.make_task(command(task) if task in FILE_TASKS else [f"task={task}"])
    spec = made.spec
    kinds = {"real": "real numbers: {}", "one_hot": "one-hot vector of size {}", "tokens": "token, one of {}"}
    of_rules = "accuracy" if spec.select[1] == "max" else spec.select[0]
    body = [
        ["input per step", kinds[spec.input].format(spec.input_size)],
        ["output", f"{spec.output_size} logits {'at every step' if spec.readout == 'all' else 'from the final state'}"],
        ["longest delay (used by `T_max=auto`)", f"{spec.horizon} steps"],
        ["loss at chance", f"{made.chance():.4g}"],
        *([f"{of_rules} of a simple rule: {rule}", f"{value:.3f}"] for rule, value in made.trivial_baselines().items()),
        *([] if math.isnan(made.optimum()) else [["lowest possible loss", f"{made.optimum():.4g}"]]),
        ["checkpoint chosen by", f"`valid/{spec.select[0]}` ({spec.select[1]})"],
    ]
    head = "in the example" if task in FILE_TASKS else "at the defaults"
    return "\n".join([*grid([head, ""], body), "", T_MAX_TEXT])


T_MAX_TEXT = (
    "`model.T_max=auto`, the default of `chrono`, `janet`, `elstm` and `leaky`, sets the longest initial time scale\n"
    "to the longest delay."
)


def recipes(task: str) -> str:
    """Write what each paper sets for a model on this task (conf/recipe). Models with the same settings share a row."""
    models: dict[tuple[str, str, str], list[str]] = {}
    of_all = sorted((CONF / "recipe").glob(f"*/{task}.yaml"))
    models_of_all = [path.with_stem(name) for path in of_all for name in folders.choices("model")]
    of_one = [path for path in models_of_all if path.is_file()]
    of_one += sorted((CONF / "recipe").glob(f"*/{task}_*.yaml"))
    for path in (*of_all, *of_one):
        lines = [line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("# ")]
        source = " ".join(line for line in lines if not line.startswith("@package"))
        content: Any = OmegaConf.to_container(OmegaConf.load(path))
        content = {"model": content} if path.stem in folders.choices("model") else content
        settings = [(key, value) for key, value in dotted(content) if not isinstance(value, dict)]
        pairs = " ".join(f"`{key}={_written(value)}`" for key, value in settings)
        models.setdefault((path.parent.name, pairs, source), []).append(
            f"`{path.stem.removeprefix(f'{task}_')}`" if path.stem != task else "all"
        )
        if "matched:" in path.read_text():
            for name, units in folders.matched()[task].items():
                row = path.parent.name, f"`model.hidden_size={units}`", "as many parameters as the LSTM (matched.yaml)"
                models.setdefault(row, []).append(f"`{name}`")
    body = [[f"`{paper}`", " ".join(names), pairs, source] for (paper, pairs, source), names in models.items()]
    return "\n".join(grid(["paper", "model", "sets", "source"], body)) if body else "No recipe is for this task."


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "[" + ",".join(map(str, value)) + "]" if isinstance(value, list) else plain(str(value))


def plain(value: str) -> str:
    """Resolve ${lr_for:adam,1.0e-4} or ${matched:128} to its number."""
    return re.sub(r"^\$\{(?:lr_for:\w+,|matched:)(.*)\}$", r"\1", value)
