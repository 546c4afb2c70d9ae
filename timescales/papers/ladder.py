"""Judge each claim at every rung of a ladder, and estimate how its effect changes with size.

At a rung a claim is *seen* if the interval of its effect is inside the claim's region, *opposite seen* if it is
outside, else *unclear*. Over the rungs the effect *grows*, *shrinks* or is *flat* if the interval of its slope says so,
else its trend is *unclear*. The words differ from those at the paper's size, because no rung decides about a paper.
"""

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from timescales.papers import judge
from timescales.papers.judge import Interval, Verdict
from timescales.papers.parse import stands_for
from timescales.papers.table import PAPER, Claim, Rung, Table, expand, group
from timescales.runs.metrics import is_steps
from timescales.runs.store import Row

SEEN, OPPOSITE, UNCLEAR = "seen", "opposite seen", "unclear"
RUNG_WORDS = {"holds": SEEN, "refuted": OPPOSITE, judge.UNDECIDED: UNCLEAR, judge.NOT_RUN: judge.NOT_RUN}
ALL, DECIDED = "all", "seen or opposite seen at the smallest size"  # groups of conclusions whose signs are counted


@dataclass(frozen=True)
class RungResult:
    """A claim at one rung.

    at: the size of the rung. short: why the rung does not count, "" if it does. runs: the ids of its runs.
    """

    name: str
    at: float
    verdict: Verdict
    word: str
    short: str = ""
    runs: frozenset[str] = frozenset()

    @property
    def counts(self) -> bool:
        """Return whether the rung has an effect that can be compared with that of other rungs."""
        return not self.short and self.verdict.interval is not None and self.word != judge.NOT_RUN


@dataclass(frozen=True)
class LadderClaim:
    """A claim over the rungs of a ladder, from the smallest, and at the paper's size if it has runs there.

    ratio: whether effects are powers of 2 of how many times as fast the first side is. tolerance: a change over the
    whole ladder that is not larger counts as none. own: the claim at the paper's size that the claim stands for.
    """

    claim: Claim
    steps: Sequence[RungResult]
    paper: Verdict | None
    ratio: bool
    tolerance: float
    own: Claim | None = None

    @functools.cached_property
    def slope(self) -> Interval | None:
        """Fit a line through the rungs: the change of the effect with each doubling of the size."""
        counted = [step for step in self.steps if step.counts]
        known = [(step.at, step.verdict.interval) for step in counted if step.verdict.interval]
        if len(known) < 2 or len(frozenset().union(*(s.runs for s in counted))) < sum(len(s.runs) for s in counted):
            return None  # rungs that share runs are not independent
        x = [math.log2(at) for at, _ in known]
        x = [each - statistics.fmean(x) for each in x]
        spread = sum(each * each for each in x)
        return judge.combined([interval for _, interval in known], [each / spread for each in x])

    @property
    def flat(self) -> float:
        """Return the largest change with each doubling of the size that counts as none. Needs two rungs."""
        sizes = [step.at for step in self.steps if step.counts]
        return self.tolerance / math.log2(sizes[-1] / sizes[0])

    @property
    def trend(self) -> str:
        """Name how the effect changes with size, by the interval of the slope. "" with fewer than two rungs."""
        if self.slope is None:
            return ""
        if self.slope.place(0.0, math.inf):
            return "grows" if self.slope.low > 0 else "shrinks"
        return "flat" if self.slope.place(-self.flat, self.flat) == 1 else UNCLEAR

    @property
    def signs(self) -> list[bool]:
        """Return whether the first side is better, at each size that counts, from the smallest."""
        found = [step.verdict.interval for step in self.steps if step.counts]
        if self.paper is not None and self.paper.interval is not None:
            found.append(self.paper.interval)
        return [interval.mid > 0.0 for interval in found if interval is not None]


def ladder_claims(table: Table, rows: Mapping[str, Sequence[Row]]) -> list[LadderClaim]:
    """Judge each claim of a table's ladder at every rung. rows: by size.

    Claims of several rungs are the same if they stand for the same claim of the paper, or have the same text.
    """
    ladder = table.ladder
    if ladder is None:
        return []
    claims = {claim.of or claim.text: claim for rung in ladder.rungs.values() for claim in rung.claims}
    planned = {name: expand(table, name) for name in (PAPER, *ladder.rungs)}
    short = {name: too_short_or_easy(rung, rows.get(name, ())) for name, rung in ladder.rungs.items()}
    found = []
    for key, claim in claims.items():
        ratio = is_steps(claim.column) and "fails" not in claim.sign
        steps = []
        for name, rung in ladder.rungs.items():
            if own := next((each for each in rung.claims if key == (each.of or each.text)), None):
                verdict = judge.judge_claim(own, rows.get(name, ()), planned[name], bool(ladder.pair), ratio)
                word = RUNG_WORDS[verdict.word]
                lacks = short[name] if word != judge.NOT_RUN else ""
                runs = frozenset(row.id for row in rows.get(name, ()))
                steps.append(RungResult(name, float(rung.at or 0), verdict, UNCLEAR if lacks else word, lacks, runs))
        of_paper = stands_for(table.claims, claim.of)
        paper = judge.judge_claim(of_paper, rows.get(PAPER, ()), planned[PAPER], ratio=ratio) if of_paper else None
        if paper and (paper.interval is None or paper.word == judge.NOT_RUN):
            paper = None
        found.append(LadderClaim(claim, steps, paper, ratio, _flat(table, claim, ratio), of_paper))
    return found


def _flat(table: Table, claim: Claim, ratio: bool) -> float:
    """Return the largest change of an effect over a whole ladder that counts as none, in the unit of the effect."""
    if ratio:
        return math.log2(1.25)
    if "fails" in claim.sign:
        return 0.1  # of the runs
    # The table's tolerance applies to its own metric, and to others that are also in percent.
    alike = not claim.has_own_metric or claim.unit == table.unit == "percent"
    return float(claim.tolerance) if alike else 0.0


def too_short_or_easy(rung: Rung, rows: Sequence[Row]) -> str:
    """Return "too short" or "too easy" if the runs of a rung compare nothing; "" if they do, or if there are no runs.

    Why: if all models fail, or all reach the ceiling, the rung would wrongly show "no difference".
    """
    competence = rung.competence
    if competence is None or not rows:
        return ""
    settings: dict[str, list[Row]] = {}
    for row in rows:
        settings.setdefault(group(row.axes), []).append(row)
    reached = [sum(bool(rung.meets(competence.reach, row)) for row in own) / len(own) for own in settings.values()]
    if max(reached) < competence.share:
        return "too short"
    easy = competence.ceiling and all(rung.meets(competence.ceiling, row) for row in rows)
    return "too easy" if easy else ""


class KeptSigns(NamedTuple):
    """Count the conclusions that keep the sign of their effect from the smallest to the largest size.

    chance: the share that would keep it if the signs at both sizes were independent, each as frequent as it is.
    """

    of: str  # which conclusions
    same: int
    total: int
    chance: float


def kept_signs(ladder_claims: Sequence[LadderClaim]) -> list[KeptSigns]:
    """Count the conclusions whose effect has the same sign at the smallest and at the largest size.

    Counted are claims "A > B" that stand for a sentence of a paper and have runs at two sizes. Tables may share runs;
    the same runs count once.

    Returns: the count of all, of those that are decided at the smallest size, and of each kind of metric that occurs.
    """
    counted: set[tuple[object, ...]] = set()
    kinds: dict[str, list[tuple[bool, bool]]] = {ALL: [], DECIDED: []}
    for judged in ladder_claims:
        claim = judged.claim
        key = (judged.steps[0].runs, str(claim.sides), claim.metric)
        if claim.sign == ">" and judged.own and judged.own.quote and len(judged.signs) >= 2 and key not in counted:
            counted.add(key)
            first = next(step for step in judged.steps if step.counts)
            decided = [DECIDED] * (first.word in (SEEN, OPPOSITE))
            metric = "accuracy" if claim.higher else "loss or perplexity"
            if is_steps(claim.column) or claim.metric.startswith("probe/"):
                metric = "steps to a threshold" if is_steps(claim.column) else "values of an analysis"
            for kind in (ALL, *decided, metric):
                kinds.setdefault(kind, []).append((judged.signs[0], judged.signs[-1]))
    found = []
    for kind, pairs in kinds.items():
        small, large = (statistics.fmean(pair[k] for pair in pairs) if pairs else 0.0 for k in (0, 1))
        chance = small * large + (1 - small) * (1 - large) if pairs else 0.0
        found.append(KeptSigns(kind, sum(a == b for a, b in pairs), len(pairs), chance))
    return found
