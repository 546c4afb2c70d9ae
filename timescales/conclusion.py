"""A conclusion of a paper as a table's `claims` write it down; `verdict.py` judges it.

A claim is one line: "plstm > lstm @ task=pmnist". Sides are conditions, a bare word is a model; `>` is "better than",
`~` "no different from" (within the tolerance); after `@` comes where it is said. `times: 10` asks for that factor.
"lstm fails" (more than half of its runs) and "plstm never fails" are about the table's `success`; in comparisons runs
that fail it are left out, unless it says `failures: count` or compares steps to a threshold (`store.Over`). Where runs
differ in something else than the seed, the claim must hold in each group of them.

What is more than the line is a mapping: {claim: the line, and optionally metric, unit, better, tolerance, times,
failures}. With `than`, another metric, the line is one side, whose runs have the first metric better than the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from timescales import tables
from timescales.schema import ConfigError

CLAIM = {
    "claim": str, "metric": str, "than": str, "unit": str, "better": tables.BETTER, "tolerance": tables.NUMBER,
    "times": tables.NUMBER, "failures": ("count",),
}  # fmt: skip


class Conclusion(NamedTuple):
    """A claim, read: as a mapping, its one side ("fails", "never fails") or two, their sign, and where it is said."""

    told: Mapping[str, Any]
    sides: list[dict[str, Any]]
    sign: str
    place: dict[str, Any]

    def kin(self, axes: Mapping[str, Any], table: Mapping[str, Any]) -> str:
        """What a run shares with those it is compared with: all but the seed and what the sides name."""
        apart = {"seed"}.union(*self.sides) | ({"optimizer.lr"} if table.get("reduce", "mean") != "mean" else set())
        return json.dumps({k: v for k, v in axes.items() if k not in apart}, sort_keys=True)


def read(said: str | Mapping[str, Any], table: Mapping[str, Any]) -> Conclusion:
    """Read a claim. Raises ConfigError for a line that is none."""
    told: Mapping[str, Any] = {"claim": said} if isinstance(said, str) else said
    text, _, place = told["claim"].partition("@")
    fails, parts = re.fullmatch(r"\s*(.+?)\s+(never fails|fails)\s*", text), re.split(r"\s([>~])\s", text)
    if "than" in told:
        if fails or len(parts) > 1:
            raise ConfigError(
                f"table/{table['name']}.yaml: cannot read the claim {told['claim']!r}: `than` goes with one side alone"
            )
        return Conclusion(told, [conditions(text)] * 2, ">", conditions(place))
    if fails:
        return Conclusion(told, [conditions(fails.group(1))], fails.group(2), conditions(place))
    if len(parts) != 3:
        raise ConfigError(f"table/{table['name']}.yaml: cannot read the claim {told['claim']!r}: A > B @ key=value")
    return Conclusion(told, [conditions(parts[0]), conditions(parts[2])], parts[1], conditions(place))


def check(table: Mapping[str, Any]) -> None:
    """Raise ConfigError for a claim that cannot be read, that no run can decide, or that lacks its own tolerance."""
    for part, profile, at in ((table, None, "table"), (tables.twin(table), "tiny", "table.tiny")):
        runs = [run.axes for run in tables.expand(table, profile)]
        for k, said in enumerate(part["claims"]):
            if not isinstance(said, str):
                place = f"table/{table['name']}.yaml: {at}.claims[{k}]"
                tables.check_keys(place, said, CLAIM, ("claim",))
                tables.check_printed(place, said)
            found = read(said, part)
            told, here = found.told, [axes for axes in runs if tables.matches(axes, found.place)]
            kin = [{found.kin(axes, part) for axes in here if tables.matches(axes, side)} for side in found.sides]
            if not set.intersection(*kin):
                raise ConfigError(
                    f"table/{table['name']}.yaml: no runs decide the claim {told['claim']!r}: name all that sets its "
                    "sides apart"
                )
            if found.sign == "~" and "metric" in told and "tolerance" not in told:
                raise ConfigError(
                    f"table/{table['name']}.yaml: the claim {told['claim']!r} has a metric of its own: say in its "
                    "unit which difference is none, tolerance: ..."
                )


def conditions(text: str) -> dict[str, Any]:
    """ "plstm task.T=200" as {"model": "plstm", "task.T": 200}."""
    parts = [part if "=" in part else f"model={part}" for part in text.split()]
    return {key: _scalar(value) for key, value in (part.split("=", 1) for part in parts)}


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)  # a number, true, false, null
    except json.JSONDecodeError:
        return text
