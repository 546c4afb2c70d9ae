"""Numbers, settings, verdicts and prices in words. Only here do verdicts become text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from timescales.config.run import Axes
from timescales.papers.table import Cell, Cited
from timescales.papers.verdict import (
    WAITING,
    ClaimResult,
    Comparison,
    Counts,
    Failures,
    Outcome,
    P,
    Side,
    Verdict,
    Word,
)
from timescales.reports.report import Price
from timescales.runs.metrics import Censored


def number(value: float) -> str:
    """A number as people write it in a table; a censored one as ">3000"."""
    if isinstance(value, Censored):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def say(value: Any) -> str:
    """A setting for people."""
    return {True: "yes", False: "no", None: "none"}[value] if isinstance(value, bool | None) else str(value)


def settings(axes: Axes) -> str:
    """Settings for people: "model=plstm, task.T=200"."""
    return ", ".join(f"{key}={say(value)}" for key, value in axes.items())


# The words of a table that is a study of hypotheses, where those of a paper's table would not say what became of them.
OF_STUDIES = {Word.REPRODUCED: "all hypotheses hold", Word.NOT_REPRODUCED: "no hypothesis holds"}


def text(verdict: Verdict) -> str:
    """A verdict with its remarks: "holds under t/125 (n=2, 1 of 3 groups)"."""
    under = [f"under {verdict.under}"] if verdict.under else []
    return " ".join([word(verdict), *under, *(f"({remark})" for remark in remarks(verdict))])


def word(verdict: Verdict) -> str:
    """A verdict's word; of a study of hypotheses "all hypotheses hold" in place of "reproduced", and the like."""
    study = verdict.counts is not None and verdict.counts.hypotheses
    return OF_STUDIES.get(verdict.word, verdict.word) if study else verdict.word


def remarks(verdict: Verdict) -> list[str]:
    """What restricts a verdict: "1 of 3 failed", "n=2, 1 of 3 groups", "part of the data"."""
    found = _less_stable(verdict) if verdict.word == Word.LESS_STABLE else []
    found += [verdict.why] if verdict.why else []
    few = [f"n={verdict.n}"] if verdict.few else []
    if verdict.groups and verdict.groups[0] < verdict.groups[1]:
        few.append("{} of {} groups".format(*verdict.groups))
    if few:
        found.append(", ".join(few))
    if verdict.partial:
        found.append("part of the data")
    if verdict.calibrated:
        found.append("calibrated")
    return found


def _less_stable(verdict: Verdict) -> list[str]:
    """Why a value is less stable than the paper's, and where its median is."""
    found = ["{} of {} failed".format(*verdict.failed)] if verdict.failed else []
    found += ["{} of {} at chance".format(*verdict.at_chance)] if verdict.at_chance else []
    found += ["{} of {} never reached the threshold".format(*verdict.censored)] if verdict.censored else []
    if verdict.p_wider is not None and verdict.p_wider.significant:
        found.append("larger spread")
    if verdict.gap is not None:
        found.append(f"median {'inside' if verdict.gap.median == Word.AGREES else verdict.gap.median}")
    return [", ".join(found)] if found else []


def counts(found: Counts | None) -> str:
    """What a table's word follows from: "6 of 11 conclusions hold, 2 refuted, 3 undecided; 11 of 18 values agree".

    These are of what was run and counts. What is not run, cannot be decided or was calibrated stands in brackets.
    """
    if found is None:
        return ""
    conclusions = _counted(found.conclusions, "hypotheses" if found.hypotheses else "conclusions", Outcome.HOLD)
    return "; ".join(filter(None, [conclusions, _counted(found.values, "values", Outcome.AGREE)]))


def _counted(found: Mapping[Outcome, int], kind: str, best: Outcome) -> str:
    judged = sum(found.values()) - sum(found.get(outcome, 0) for outcome in WAITING)
    waiting = [f"{found[outcome]} {outcome}" for outcome in WAITING if found.get(outcome)]
    if not judged:
        return f"{kind}: {', '.join(waiting)}" if waiting else ""
    others = [outcome for outcome in Outcome if outcome not in (best, *WAITING) and found.get(outcome)]
    more = "".join(f", {found[outcome]} {outcome}" for outcome in others)
    return f"{found.get(best, 0)} of {judged} {kind} {best}{more}" + (f" ({', '.join(waiting)})" if waiting else "")


def text_with_counts(verdict: Verdict) -> str:
    """A table's verdict with the counts behind it."""
    return ": ".join(filter(None, [text(verdict), counts(verdict.counts)]))


def p_text(p: P | None) -> str:
    """A p value, in brackets corrected for the other tests of its family."""
    return "" if p is None else f"{p.raw:.2g} ({p.corrected:.2g})"


def numbers(result: ClaimResult) -> str:
    """The numbers behind the verdict on a claim."""
    found, groups = result.numbers, result.verdict.groups
    if found is None:
        return ""
    if isinstance(found, Comparison):
        words = _comparison(found)
    else:
        words = " against ".join(map(_failures, [found] if isinstance(found, Failures) else found))
    return words + (f"; the weakest of {groups[0]} groups" if groups and groups[0] > 1 else "")


def _failures(found: Failures) -> str:
    return f"{found.failed} of {found.ended} runs fail"


def _comparison(found: Comparison) -> str:
    more = {"diverged": found.diverged, "failed": found.failed}
    lost = "".join(f"; {number} {word}" for word, number in more.items() if number)
    return f"{_side(found.first)} against {_side(found.second)}{lost}"


def _side(side: Side) -> str:
    return f"{number(side.value)} (n={side.n})"


def price(runs: Price) -> str:
    """What missing runs will take."""
    minutes = runs.seconds / 60
    time = f"{minutes:.0f} min" if minutes < 60 else f"{minutes / 60:.{1 if minutes < 600 else 0}f} h"
    timed = [f"{_runs(runs.timed)}: {time}"] if runs.timed else []
    untimed = [f"{_runs(runs.untimed)} not timed"] if runs.untimed else []
    return ", ".join(timed + untimed)


def _runs(count: int) -> str:
    return f"{count} run{'s' if count > 1 else ''}"


def most_common(verdicts: Sequence[Verdict]) -> str:
    """How many verdicts have each word, the most frequent first: "8 *not run*, 1 *reproduced*"."""
    return ", ".join(f"{n} *{words}*" for words, n in Counter(map(word, verdicts)).most_common())


def with_sd(mean: float | None, sd: float | None) -> str:
    """A mean with its standard deviation."""
    if mean is None:
        return ""
    return number(mean) + ("" if sd is None else f" ({sd:.0f})" if sd >= 100 else f" ({sd:.2g})")


def printed(cell: Cell | Cited) -> str:
    """A printed value with its spread."""
    if cell.value is None:
        return ""
    spread = f" ({cell.sd})" if cell.sd is not None else f" +- {cell.se}" if cell.se is not None else ""
    return f"{cell.value}{spread}"
