"""Give random command lines to `train.py`, and print what becomes of each case as one line of JSON.

    python tests/faults/random_overrides.py SEED FIRST LAST [small]

A case follows from the seed and its number. All of the command line is used, with Hydra: only the training is replaced
by the checks that need no torch. One process takes all cases, each in a tenth of a second. `small` draws overrides of
one run alone, and no sizes above 50, so that a valid case can take a training step.
"""

import argparse
import contextlib
import io
import json
import random
import re
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import composed_once  # noqa: E402, F401
from hydra.core.global_hydra import GlobalHydra  # noqa: E402

import train  # noqa: E402
from timescales.config import compose, folders  # noqa: E402
from timescales.config.run import Run  # noqa: E402
from timescales.errors import dotted  # noqa: E402
from timescales.experiment import train as one_run  # noqa: E402
from timescales.experiment.sweep import Sweep  # noqa: E402
from timescales.runs.record import Record  # noqa: E402

GROUPS = ("model", "task", "optimizer", "paper")
SECONDS = 30  # a case that takes longer counts as hanging


def words(text: str) -> list[str]:
    """Split at blanks."""
    return text.split()


# Unusual values: what is drawn follows from their order and number.
WORDS = [
    *words("paper authors async ur auto random fused cpu cuda tf32 learned chrono uniform x None nan ünï 日本 🙂 a=b"),
    *["a,b", "a:b", "[", "{", "(", "\\", "$", "#", "!x", "&a", "*a", "%", "'", '"'],
    *("", " ", "a b", "\t", "x" * 5000),
]
NESTED = words(
    """[] {} [1,2] [[1],[2,[3]]] [null] [a,1,true] {a:1} {law:chrono,T_max:5} {law:chrono} {law:constant,value:1}
    {law:inverse_gamma,alpha:1.5} {law:nope} {a:{b:{c:[1]}}} [forget] [forget,input] {law:uniform,low:1,high:0}
    [5,5] {law:chrono,T_max:-1} [{law:constant,value:0}] {_target_:os.system}"""
)
INTERPOLATIONS = words(
    """${seed} ${nope} ${model} ${task} ${model.hidden_size} ${oc.env:HOME} ${oc.env:NOPE} ${oc.env:NOPE,3}
    ${oc.env:NOPE,null} ${oc.decode:'1'} ${run_dir:} ${ ${nope:1} ${hydra:job.name} ${.name} ${..seed} ${${seed}}
    ${oc.dict.keys:model} ${oc.select:nope,2} ${oc.create:{a:1}} ???"""
)
PLACES = ["/proc/nowhere", "nowhere", "a/b/c", "x" * 300, "~nobody/x", "con:", "ü/ñ"]
TARGETS = words(
    """os.system builtins.eval torch.load torch.nn.Linear torch.optim.LBFGS torch.optim.AdamW timescales.LSTM
    timescales.tasks.Task timescales.tasks.Copy timescales.nope.X . .. a. .a timescales 5 ü.ñ timescales.URLSTM
    timescales.optim.NTASGD torch.optim.SparseAdam"""
)
KEYS = ["", *words("ü . a.b.c model. task..T loop hydra.nope task@x model/x x[0]")]
SMALL_INTEGERS = words("-1 0 1 2 3 4 5 7 50")
LARGE = ["1" + "0" * 40, *words("1000 1000000 2147483648 9223372036854775808 1e300 1e-300 0x10 1_000")]
FLOATS = words("0.0 0.5 -0.5 1.0 1.5 1e-3 1e-9 inf -inf nan .5 1.")
CONSTANTS = words("true false null True NULL yes")
SWEEPS = words(
    """A,B A,B,C A, ,A choice(A,B) choice() range(1,3) range(3) range(A) interval(0,1) interval(A,B) glob(*) glob(A)
    sort(2,1) shuffle(1,2) tag(x,A,B) nope(A) int(A) float(A) str(A) json_str(A) extend_list(A) choice(A,B [A,B]
    {A:B}"""
)
MARKS = [" ", "\n", *words("""' " [ ] { } ( ) \\ , : = $ ${ # & @ ~ + é""")]
HYDRA_KEYS = words(
    """hydra hydra.job hydra.job.name hydra.verbose hydra.mode hydra.searchpath hydra.sweeper hydra.sweeper.minutes
    hydra.sweeper.nope hydra.run.dir hydra.sweep.dir hydra.nope hydra.job.chdir hydra.callbacks hydra.launcher
    hydra/launcher hydra/sweeper hydra/job_logging hydra/nope hydra.runtime.cwd hydra.overrides"""
)
OPTIONS = [
    words(option)
    for option in (
        *("--model plstm", "--config-dir nowhere", "--config-dir", "--cfg job", "--cfg nope", "--resolve", "--run"),
        *("--config-name nope", "--config-path nope", "--package nope", "--info nope", "--info config", "--help"),
        *("--version", "--nope=1", "-x", "--", "table=chien_copy rung=small seed=200", "table=chien_copi", "table="),
        *("rung=small", "table=null", "hydra/sweeper=basic", "hydra/sweeper=optuna", "hydra/launcher=nope"),
    )
]


def value(rng: random.Random, key: str, small: bool) -> str:
    """A random value for a key, as it is typed."""
    if key.endswith("_target_") and rng.random() < 0.8:
        return rng.choice(TARGETS)
    if key in ("run_dir", "data_root"):
        return quoted(rng.choice(PLACES))
    kinds: list[Callable[[], str]] = [
        lambda: rng.choice(SMALL_INTEGERS if small else SMALL_INTEGERS + LARGE),
        lambda: str(rng.randint(-3, 50)),
        lambda: rng.choice(FLOATS),
        lambda: f"{rng.uniform(-1, 2):.3g}",
        lambda: rng.choice(CONSTANTS),
        lambda: quoted(rng.choice(WORDS)) if rng.random() < 0.7 else rng.choice(WORDS),
        lambda: quoted("".join(chr(rng.choice([rng.randint(1, 126), rng.randint(160, 0x2FFF)])) for _ in range(6))),
        lambda: rng.choice(NESTED),
        lambda: rng.choice(INTERPOLATIONS) if rng.random() < 0.5 else quoted(rng.choice(INTERPOLATIONS)),
    ]
    return rng.choice(kinds)()


def quoted(text: str) -> str:
    """Any text, quoted for Hydra."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def override(rng: random.Random, known: list[str], small: bool) -> str:
    """A random override of a known key, or of one that does not exist."""
    key, kind = rng.choice(known), rng.random()
    if kind < 0.06:
        key = key[: rng.randrange(1, len(key) + 1)] + rng.choice("xé_. -@/0")
    elif kind < 0.09:
        key = rng.choice(KEYS)
    sign = rng.choices(["", "+", "++", "~"], [88, 3, 6, 3])[0]
    if sign == "~" and rng.random() < 0.7:
        return f"~{key}"
    return f"{sign}{key}={value(rng, key, small)}"


def sweeping(rng: random.Random, known: list[str]) -> str:
    """A random override with several values, or with a function of Hydra's grammar."""
    key = rng.choice([*GROUPS, *known])
    values = [rng.choice(folders.choices(key)) if key in GROUPS else value(rng, key, True) for _ in range(3)]
    form = rng.choice(SWEEPS)
    return f"{key}={form.replace('A', values[0]).replace('B', values[1]).replace('C', values[2])}"


def broken(rng: random.Random, text: str) -> str:
    """An override with a character too much or too few."""
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(MARKS) + text[at + rng.randrange(2) :]


def command(seed: int, number: int, small: bool, keys: Callable[[list[str]], list[str]]) -> list[str]:
    """The command line of a case, which seed and number decide.

    keys: returns the keys of the configuration that choices of groups compose.
    """
    rng = random.Random(f"{seed} fuzz {number} {small}")
    # Only 40 different choices of groups: the keys of each are composed once.
    chosen = random.Random(f"groups {rng.randrange(40)}")
    case = [f"{group}={chosen.choice(folders.choices(group))}" for group in GROUPS if chosen.random() < 0.8]
    known = keys(list(case))
    if rng.random() < 0.03:
        case.append(f"{rng.choice((*GROUPS, 'logger', 'table'))}={value(rng, '', small)}")
    n = rng.choice([1, 1, 1, 2, 2, 3, 5])
    case += [override(rng, known, small) for _ in range(n)]
    if small:
        return case
    if rng.random() < 0.1:  # given twice, or a group in another form
        key, _, text = rng.choice(case).partition("=")
        case.append(f"{rng.choice(['', '+', '++', '~'])}{key}{rng.choice(['=', '', '@here=', '/x='])}{text}")
    if rng.random() < 0.1:
        case.append(sweeping(rng, known))
    if rng.random() < 0.1:
        k = rng.randrange(len(case))
        case[k] = broken(rng, case[k])
    if rng.random() < 0.05:
        case.append(f"{rng.choice(HYDRA_KEYS)}={value(rng, '', small)}")
    if rng.random() < 0.05:
        case += rng.choice(OPTIONS)
    if rng.random() < 0.15:
        case.append("-m")
    return case


class Late(BaseException):
    """A case takes too long. Not an Exception, since OmegaConf would wrap one that is raised in a resolver."""


def raise_late(number: int, frame: FrameType | None) -> None:
    """The handler of the alarm."""
    raise Late


class Outcome(NamedTuple):
    """What became of a case."""

    kind: str  # "valid"; "clear": one line; "fault"
    text: str  # the line, or the traceback
    overrides: list[str]  # the command line


class Commands:
    """Gives cases to `train.py`, up to where it would load torch."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, ...], list[str]] = {}
        one_run.train = validated
        launch_all = Sweep.train
        Sweep.train = lambda self, todo: launch_all(self, todo[:1])  # type: ignore[method-assign]  # one is enough
        signal.signal(signal.SIGALRM, raise_late)

    def keys(self, groups: list[str]) -> list[str]:
        """All keys of the configuration that these choices compose."""
        if tuple(groups) not in self.known:
            composer = compose.Composer()
            known = [key for key, _ in dotted(composer(groups))]
            self.known[tuple(groups)] = [key for key in known if not key.startswith(("logger", "table"))]
        return self.known[tuple(groups)]

    def case(self, seed: int, number: int, small: bool) -> Outcome:
        """What becomes of one case."""
        case = command(seed, number, small, self.keys)
        GlobalHydra.instance().clear()
        sys.argv = ["train.py", *case]
        out, err, status = io.StringIO(), io.StringIO(), 0
        signal.alarm(SECONDS)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                train.run()
        except SystemExit as leaving:
            status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except Late:
            return Outcome("fault", f"hung: more than {SECONDS} s", case)
        except Exception as error:
            return Outcome("fault", "".join(traceback.format_exception(error)), case)
        finally:
            signal.alarm(0)
        return outcome(status, out.getvalue(), err.getvalue(), case)


def validated(run: Run, direction: Any = None) -> Record:
    """What `train` does before it trains."""
    return one_run.ended(run, direction) or Record(id=run.id, status="interrupted")


def outcome(status: int, out: str, err: str, case: list[str]) -> Outcome:
    """The outcome of a case by what `train.py` printed and its exit status."""
    if status == 0:
        return Outcome("valid" if not err else "fault", err, case)
    if status == 2 and err.startswith("usage: "):  # argparse's, of Hydra's options
        return Outcome("clear", err.splitlines()[-1], case)
    line = err.removeprefix("error: ").removesuffix("\n")
    if status != 1 or line == err or not line.strip() or "\n" in line:
        return Outcome("fault", err, case)
    if re.fullmatch(r"\d+ of \d+ runs? failed", line):  # each has a line of its own
        line = re.findall(r"^failed: .*\n  (.*)$", out, re.MULTILINE)[-1]
    return Outcome("clear", line, case)


def read(printed: str) -> list[Outcome]:
    """The outcomes that a process of this file has printed."""
    return [Outcome(*json.loads(line)) for line in printed.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    for name in ("seed", "first", "last"):
        parser.add_argument(name, type=int)
    parser.add_argument("size", nargs="?", choices=["small"])
    options = parser.parse_args()
    commands = Commands()
    for number in range(options.first, options.last):
        print(json.dumps(commands.case(options.seed, number, options.size == "small")), flush=True)
    heavy = {"torch", "pandas", "wandb"} & set(sys.modules)
    assert not heavy, f"the validation imported {heavy}"


if __name__ == "__main__":
    main()
