"""Write results/reanalysed/README.md: numbers that need no training, and what they show about tables."""

from __future__ import annotations

from collections.abc import Sequence

from timescales.analysis.study import Source
from timescales.papers.reanalysed import in_words
from timescales.reports.markdown import grid
from timescales.reports.report import Report
from timescales.reports.wording import number

INTRO = """\
# What needs no training

Written by `make report` from [values.csv](values.csv), which this command computes, in minutes:

```bash
python scripts/report.py --reanalyse   # with --check it compares, and writes nothing
```

**Published models.** Mahto et al. put arrays of their trained models beside their code in February 2021, and removed
them in March: the time scale of each unit, -1 / ln of its forget gate averaged over the test text, of the baseline and
of the multi-timescale model on Penn Treebank and WikiText-2, and 23 ratios of perplexities for each of four bins of
words. The command reads them from commit `f9361b21` of
[their repository](https://github.com/HuthLab/multi-timescale-LSTM-LMs), and checks them; they are not part of this one.

- The release does not say which of the paper's runs the time scales belong to.
- The ratios are of table 3's multi-timescale model (figure 12): times its printed perplexities they are numbers of two
  decimals, times those of table 1's they are not. Beside figure 3, which is of another run, they are a replication.
- Figure 5 shows forget gates over one window of 70 words. Here a unit's mean gate is that of the whole test text.

**Data.** The strings of Dyck-2 as our runs have them, and the training words of both corpora.
"""
UNIT_COLUMNS = {
    "nearest alpha": "probe/timescale_law/alpha",
    "distance": "probe/timescale_law/ks_inverse_gamma",
    "of the nearest normal": "probe/timescale_law/ks_normal",
    "share below 10 steps": "probe/timescale_law/below_10",
    "longest (steps)": "probe/timescale_law/longest",
}
UNITS = """\
## Time scales of the published models, and before training

The distance is Kolmogorov and Smirnov's, of the units of all three layers, from the nearest inverse gamma distribution
and from the nearest normal one of deviation .1. The paper prints alpha 1.4 for Penn Treebank; of the published models
the one on WikiText-2 has it. A gate that rounds to 1 gives a time scale of millions of steps. The deviation of the
normal distribution is fixed, so it cannot fit units that spread, whatever their law; the paper prints no untrained
model. The last line has one: an LSTM of the same sizes with torch's initial weights, from its forget biases. Its
units are so alike that neither distribution fits them, and the normal one is nearer: that the inverse gamma is nearer
comes with training.
"""
JUDGED = """\
## What the tables say by them

*As printed*: a model's number has the printed digits, one of data is within the tolerance, a claim's two numbers have
its order. No test is needed: the sentence is about this model, or these data. The verdicts of a table are only
about our runs; these are beside them.
"""


def page(sources: Sequence[Source], reports: Sequence[Report]) -> str:
    """Return the text of results/reanalysed/README.md."""
    units = [source for source in sources if UNIT_COLUMNS["nearest alpha"] in source.values]
    body = [[source.of, *(number(source.values[key]) for key in UNIT_COLUMNS.values())] for source in units]
    every = [found for report in reports for found in report.reanalysed]
    of_tables = [(report.table.name, in_words(report.reanalysed)) for report in reports if report.reanalysed]
    lines = [INTRO, UNITS, *grid(["model", *UNIT_COLUMNS], body), "", JUDGED]
    lines += [f"{in_words(every)}. Each is on the page of its table:", ""]
    lines += [f"- [{name}](../{name}/table.md#without-a-training): {words}" for name, words in of_tables]
    return "\n".join([*lines, ""])
