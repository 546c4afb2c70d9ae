"""The gates of docs/cards: each is compiled, with the numbers and gradients of the eager engine, and has its card."""

import re

import pytest
import torch

from timescales import paths
from timescales.atlas.definition import atlas
from timescales.atlas.own import OwnLayers

FOLDER = paths.ROOT / "docs" / "cards"
GATES = sorted(FOLDER.glob("*/*.py"))


def source(path):
    """FILE:CLASS, as on the command line."""
    name = re.search(r"^class (\w+)\(Cell\)", path.read_text(), re.MULTILINE)
    return f"{path}:{name[1]}"


@pytest.mark.parametrize("path", GATES, ids=lambda path: path.stem)
def test_a_gate_is_compiled_and_has_the_numbers_of_the_eager_engine(path):
    torch.manual_seed(0)
    x, dt = torch.randn(12, 3, 4), 0.5 + torch.rand(12, 3)
    made = {name: OwnLayers(4, 8, source=source(path), engine=name) for name in ("fused", "eager")}
    made["eager"].load_state_dict(made["fused"].state_dict())
    found = {}
    for name, layers in made.items():
        output = layers(x, dt=dt)[0]
        output.square().sum().backward()
        found[name] = [output.detach(), *(p.grad for p in layers.parameters())]
    for fused, eager in zip(found["fused"], found["eager"], strict=True):
        torch.testing.assert_close(fused, eager, rtol=1e-4, atol=1e-5)
    assert all(torch.isfinite(value).all() for value in found["eager"])


@pytest.mark.parametrize("path", GATES, ids=lambda path: path.stem)
def test_a_gate_has_a_card_of_todays_rungs(path):
    text = (path.parent / "card.md").read_text()
    assert f"timescales-card {path.name}:{source(path).rpartition(':')[2]} --quick" in text
    assert all(f"| {rung} |" in text for rung in atlas().quick)
    assert (path.parent / "card.png").is_file()
    assert path.stem in (FOLDER / "README.md").read_text()
