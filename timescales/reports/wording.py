"""Write numbers, intervals, settings, claims and prices as people write them."""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from timescales.config.run import Axes
from timescales.papers.judge import AGAINST, FOR, NOT_RUN, UNDECIDED, Interval, Verdict
from timescales.papers.ladder import LadderClaim, RungResult
from timescales.papers.table import Cell, Cited, Claim
from timescales.reports.report import Judged, Report
from timescales.runs.cost import duration
from timescales.runs.metrics import Censored, is_steps


def number(value: float) -> str:
    """Write a number with up to four digits; a censored one as ">3000", an infinite one as "?"."""
    if isinstance(value, Censored):
        return str(value)
    if math.isinf(value):
        return "?"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.4g}"


def setting_value(value: Any) -> str:
    """Write a setting's value for people."""
    return {True: "yes", False: "no", None: "none"}[value] if isinstance(value, bool | None) else str(value)


def settings(axes: Axes) -> str:
    """Write settings as they are typed: "model=plstm, task.T=200"."""
    return ", ".join(f"{key}={setting_value(value)}" for key, value in axes.items())


# Words for settings whose value would not be understood by itself.
SETTING_WORDS = {"task.T": "T = {}", "task.high": "T up to {}", "model.power": "p = {}", "model.alpha": "alpha = {}"}
SETTING_WORDS |= {"model.hidden_size": "{} units", "optimizer.lr": "rate {}", "loop.max_steps": "{} steps"}
SETTING_WORDS |= dict.fromkeys(("task", "model", "task.sampling", "task.corpus", "model.core"), "{}")
SETTING_WORDS |= {"task.length": "length {}"}
# Names of the gates of Gu et al.: C(hrono), U(niform), O(rdered), R(efine), and two of them together.
GATES = {"-": "plain", "c": "C", "u": "U", "o": "O", "r": "R", "om": "OM", "or": "OR", "um": "UM", "ur": "UR"}
# Words for the values of analyses that claims are about: a pattern of their names, and words for what it finds.
METRIC_WORDS = {
    r"ablation/random/kept": "accuracy kept with random units silenced",
    r"ablation/later_first/kept": "accuracy kept with late units silenced first",
    r"generalisation/(\d+)": "accuracy at delay {}",
    r"length_accuracy/above_150": "accuracy on reviews of more than 150 words",
    r"length_accuracy/drop": "loss of accuracy beyond 150 words",
    r"reset_units/p_mean": "mean p",
    r"reset_units/p_below_half": "share of p below 1/2",
    r"reset_units/later_p_mean": "mean p of units that reset late",
    r"reset_units/others_p_mean": "mean p of the other units",
    r"reset_units/units_50": "number of units that reset late",
    r"reset_units/units_resetting": "number of units that reset constantly",
    r"reset_units/units_not_resetting": "number of the other units",
    r"reference_times/late/mean_both": "number of units that reset late at shorter and at longer delays",
    r"reference_times/late/mean_one": "number of units that reset late at only one of the two",
    r"reference_times/late/mean_neither": "number of units that reset late at neither shorter nor longer delays",
    r"forgetting/max": "time scale of the slowest unit",
    r"forgetting/min": "time scale of the fastest unit",
    r"bins/all": "perplexity of all words",
    r"bins/(.*)": "perplexity of words {}",
    r"longest_pair/above_(\d+)": "accuracy on strings with a pair of more than {} steps",
    r"longest_pair/up_to_(\d+)": "accuracy on strings with pairs of up to {} steps",
    r"longest_pair/wrong_up_to_(\d+)": "errors on strings with pairs of up to {} steps",
    r"timescale_law/ks_inverse_gamma": "distance of time scales from an inverse gamma distribution",
    r"timescale_law/ks_normal": "distance of time scales from a normal distribution",
    r"timescale_law/below_(\d+)": "share of time scales below {} steps",
    r"timescale_law/from_(\d+)": "share of time scales of {} steps and more",
    r"routing/none": "no harm",
    r"routing/not_(long|medium|shortest)/(.*)": "harm to words {1} by silencing the other units",
    r"routing/(long|medium|shortest)/(.*)": "harm to words {1} by silencing units of {0} time scales",
    r"assigned/layer(\d)/explained": "share of the order of time scales in layer {} that the assigned ones explain",
    r"assigned/layer(\d)/unexplained": "share that they do not explain",
    r"assigned/layer(\d)/assigned_from_1000": "share of units of layer {} assigned 1,000 steps and more",
    r"gate_maps/above_0.9": "share of units whose forget gate is above .9",
    r"gate_maps/in_one_layer": "share of the units with a forget gate above .9 that are in one layer",
    r"gate_maps/layer(\d)/above_0.9": "share of units of layer {} whose forget gate is above .9",
    r"word_ablation/layer(\d)/decay": "speed at which layer {} forgets a word",
    r"word_ablation/(longer|shorter)/decay": "speed at which units of {} time scales forget a word",
    r"one_over_e/median": "median time after which 1/e is left",
}
FREQUENCIES = {"above_10K": "seen more than 10,000 times", "1K_10K": "seen 1,000 to 10,000 times"}
FREQUENCIES |= {"100_1K": "seen 100 to 1,000 times", "below_100": "seen fewer than 100 times"}


def in_words(axes: Axes) -> str:
    """Write settings in words: "plstm, T = 200". A gate stands for the gated model; a flag is "with" or "without"."""
    shown = (key for key in axes if not key.startswith("loop.") or key == "loop.max_steps")
    return ", ".join(_in_words(key, axes[key]) for key in shown)


def _in_words(key: str, value: Any) -> str:
    if key == "model.gate":
        names = value if isinstance(value, list) else [value]
        return "gate " + " or ".join(GATES.get(str(name), str(name)) for name in names)
    values = " or ".join(map(setting_value, value)) if isinstance(value, list) else setting_value(value)
    if key == "loop.max_steps" and isinstance(value, int):
        values = f"{value:,}"
    if key in SETTING_WORDS:
        return SETTING_WORDS[key].format(values)
    name = key.rpartition(".")[2].replace("_", " ")
    if isinstance(value, bool):
        return f"{'with' if value else 'without'} {name.replace(' input', ' as input')}"
    return f"{name} {values}"


SIGNS = {">": "better than", ">=": "not worse than", "~": "like"}


def claim_in_words(claim: Claim) -> str:
    """Write a claim's line for people: "plstm better than lstm (async, without time as input)"."""
    if claim.words:
        return claim.words
    sides = [in_words(side) for side in claim.sides]
    where = f" ({in_words(claim.place)})" if claim.place else ""
    if claim.than:
        return f"{sides[0]}: {metric_in_words(claim.metric)} {_more(claim)} {metric_in_words(claim.than)}{where}"
    if len(sides) == 1:
        return f"{sides[0]} {claim.sign}{where}"
    faster = is_steps(claim.column) and claim.sign == ">"
    sign = "faster than" if faster else SIGNS.get(claim.sign, claim.sign)
    own = not faster and claim.has_own_metric
    by = f" by more than {number(claim.by)}" if claim.by else ""
    if own and claim.sign in (">", ">=") and claim.metric.startswith("probe/"):  # more or less of it, not better
        more = _more(claim) if claim.sign == ">" else f"not {'lower' if claim.higher else 'higher'} than"
        that = " that" * (claim.times != 1)
        return f"{sides[0]}: {metric_in_words(claim.metric)} {more}{that} for {sides[1]}{where}"
    metric = f" in {metric_in_words(claim.metric)}" if own else ""
    times = f" {number(claim.times)} times" if claim.times != 1 else ""
    return f"{sides[0]} {sign} {sides[1]}{times}{by}{metric}{where}"


def _more(claim: Claim) -> str:
    """Say that a value is above another one, or below it: "higher than", "lower than 1/10 of"."""
    by = f" by more than {number(claim.by)}" if claim.by else ""
    part = f" {number(claim.times)} times" if claim.higher else f" 1/{number(claim.times)} of"
    return f"{'higher' if claim.higher else 'lower'}{by} than{part * (claim.times != 1)}"


def metric_in_words(metric: str) -> str:
    """Write a metric for people: "probe/bins/all" becomes "perplexity of all words"; others lose their slashes."""
    name = re.sub(r"^(probe|data)/", "", metric)
    for pattern, words in METRIC_WORDS.items():
        if found := re.fullmatch(pattern, name):
            return words.format(*(FREQUENCIES.get(part, part) for part in found.groups()))
    return name.replace("/", ", ").replace("_", " ")


def value_in_words(cell: Cell, assumed: Mapping[str, Any]) -> str:
    """Describe a printed value, without settings that the paper does not state."""
    where = {key: value for key, value in cell.where.items() if key not in assumed}
    return ": ".join(filter(None, [cell.label, in_words(where)]))


def interval(estimate: Interval | None, signed: bool = False) -> str:
    """Write an estimate with its interval: "+24.9 [21.5, 28.2]"; without an interval only the estimate."""
    if estimate is None:
        return ""
    mid = f"{'+' if signed and estimate.mid > 0 else ''}{number(estimate.mid)}"
    if not estimate.has_ends:
        return mid
    return f"{mid} [{number(estimate.low)}, {number(estimate.high)}]"


def percent(share: Interval) -> Interval:
    """Convert a share of runs to a percentage."""
    return Interval(*(100 * x for x in share))


def effect(claim: Claim, estimate: Interval | None, ratio: bool = False) -> str:
    """Write the effect of a claim, with its interval and its unit."""
    if estimate is None:
        return ""
    if "fails" in claim.sign:
        return f"{interval(percent(estimate), signed=len(claim.sides) > 1)} % of runs"
    if not ratio:
        return interval(estimate, signed=True)
    low, mid, high = (2.0**x if math.isfinite(x) else x for x in estimate)
    if not estimate.has_ends:
        return f"{mid:.2g} times as fast"
    # If one side has runs that never reached the threshold, the estimate is a bound too.
    bound = "at least " if math.isinf(high) else "at most " if math.isinf(low) else ""
    ends = f"{'less' if math.isinf(low) else f'{low:.2g}'}, {'more' if math.isinf(high) else f'{high:.2g}'}"
    return f"{bound}{mid:.2g} times as fast [{ends}]"


def unit_of_effect(claim: Claim) -> str:
    """Return the unit of a claim's effect."""
    return "points" if claim.unit == "percent" else "steps earlier" if is_steps(claim.column) else claim.unit


def step(judged: LadderClaim, at: RungResult) -> str:
    """Write what one rung shows about a claim: the word and the effect."""
    shown = effect(judged.claim, at.verdict.interval, judged.ratio)
    return at.short or f"{at.word}: {shown}".removesuffix(": ")


def slope(judged: LadderClaim) -> str:
    """Write the change of an effect with each doubling of the size."""
    if judged.slope is None or not judged.ratio:
        return effect(judged.claim, judged.slope)
    return interval(Interval(*(2.0**x if math.isfinite(x) else x for x in judged.slope))) + " times"


# --- tables ---


def counted(found: Mapping[str, int], kind: str) -> str:
    """Write counts in words: "5 of 16 conclusions hold, 2 are refuted, 9 undecided, 3 not run"; "" for none."""
    total = sum(found.values())
    if not total:
        return ""
    favour, against = (sum(found.get(word, 0) for word in words) for words in (FOR, AGAINST))
    yes, no = ("agree", "differ") if kind == "printed values" else ("hold", "are refuted")
    rest = [f"{found[word]} {word}" for word in (UNDECIDED, NOT_RUN) if found.get(word)]
    return ", ".join([f"{favour} of {total} {kind} {yes}", f"{against} {no}", *rest])


def counts(reports: Sequence[Report]) -> list[str]:
    """Count the decided conclusions, and the decided printed values, of tables together, in words."""
    kinds = ("hypotheses" if any(report.study for report in reports) else "conclusions", "printed values")
    return [counted(sum((r.counts[k] for r in reports), Counter[str]()), kind) for k, kind in enumerate(kinds)]


def yes_or_no(found: Mapping[str, int]) -> str:
    """Return a short answer, such as "yes", "in part" or "not known yet", from the number of items with each word."""
    favour, against, open_ = (sum(found.get(w, 0) for w in words) for words in (FOR, AGAINST, (UNDECIDED, NOT_RUN)))
    if not favour and not against:
        return "Not known yet"
    if favour and against:
        return "In part"
    if open_ > favour + against:
        return "Mostly open"
    word = "yes" if favour else "no"
    return f"So far {word}" if open_ else word.capitalize()


def answer(report: Report) -> str:
    """Answer in one sentence whether a table is reproduced at the paper's size."""
    conclusions, values = report.counts
    if not conclusions and not values:
        if report.study:
            return "There are none" + ("; what we expected stands below the claims." if report.every_claim else ".")
        return "There is nothing to compare with: we know of no conclusion and of no printed value."
    first = yes_or_no(conclusions or values)  # a paper that concludes nothing is judged by its values
    return f"{first}: {'; '.join(filter(None, counts([report])))}."


def full_size(report: Report) -> str:
    """Return the name for the size of a table's own runs."""
    return "full size" if report.study else "the paper's size"


def group_verdict(judged: Judged[Any]) -> str:
    """Return the word for an item; if its views disagree, also the word of each view."""
    words = list(dict.fromkeys(verdict.word for verdict in judged.verdicts))
    return judged.word if len(words) == 1 else f"{judged.word} ({', '.join(v.word for v in judged.verdicts)})"


def notes(verdicts: Sequence[Verdict]) -> str:
    """Join the notes of all views of an item."""
    return "; ".join(dict.fromkeys(", ".join(verdict.notes) for verdict in verdicts if verdict.notes))


def price(open_runs: Collection[float | None]) -> str:
    """Write the time that open runs will take, from the seconds of each; None for a run whose cost is not known."""
    timed = [seconds for seconds in open_runs if seconds is not None]
    numbers = {f": {duration(sum(timed))}": len(timed), " not timed": len(open_runs) - len(timed)}
    return ", ".join(f"{n} run{'s' if n > 1 else ''}{words}" for words, n in numbers.items() if n)


def printed(cell: Cell | Cited) -> str:
    """Write a printed value with its spread."""
    if cell.value is None:
        return ""
    spread = f" ({cell.sd})" if cell.sd is not None else f" +- {cell.se}" if cell.se is not None else ""
    return f"{cell.value}{spread}"
