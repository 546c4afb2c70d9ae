"""Weights of somebody else's language model: torch's names, AWD-LSTM's names, what is no LSTM."""

import pickle

import pytest
import torch
from torch import nn

from timescales.analysis import timescale_law, weights
from timescales.errors import ConfigError
from timescales.nn.inits import timescale_of_gate

TYPES, EMBEDDING, HIDDEN = 30, 6, (8, 6)  # the fixture `root` has a text of 30 words


def layers():
    """One torch LSTM for each layer, and the tensors of an embedding and a readout, tied."""
    torch.manual_seed(3)
    rnns = [nn.LSTM(EMBEDDING, HIDDEN[0]), nn.LSTM(HIDDEN[0], HIDDEN[1])]
    with torch.no_grad():
        for rnn in rnns:
            rnn.bias_hh_l0[:].uniform_(-2, 3)
    return rnns, torch.randn(TYPES, EMBEDDING), torch.randn(TYPES)


def torchs(prefix="", tied=True):
    """The state_dict of torch's example: one LSTM of two layers (of one size), encoder, decoder."""
    rnns, vectors, bias = layers()
    state = {f"{prefix}encoder.weight": vectors}
    for k, rnn in enumerate(rnns):
        state |= {f"{prefix}rnn.{name[:-1]}{k}": value.detach() for name, value in rnn.named_parameters()}
    decoder = vectors if tied else torch.randn(TYPES, EMBEDDING)
    return state | {f"{prefix}decoder.weight": decoder, f"{prefix}decoder.bias": bias}


def awds(wrapped=True):
    """That of AWD-LSTM: an LSTM for each layer, its recurrent weights beside it, after dropout in it."""
    rnns, vectors, bias = layers()
    state = {"encoder.weight": vectors, "decoder.bias": bias, "decoder.weight": vectors}
    for k in (1, 0):
        own = {f"rnns.{k}.module.{name}": value.detach() for name, value in rnns[k].named_parameters()}
        raw = own[f"rnns.{k}.module.weight_hh_l0"]
        own[f"rnns.{k}.module.weight_hh_l0"] = raw * 2.0 * (torch.rand_like(raw) < 0.5)
        if not wrapped:
            del own[f"rnns.{k}.module.weight_hh_l0"]
        state |= own | {f"rnns.{k}.weight_hh_l0_raw": raw}
    return state


def saved(tmp_path, content):
    torch.save(content, tmp_path / "lm.pt")
    return tmp_path / "lm.pt"


def settings(root):
    return ["task=ptb_word", "task.allow_partial=true", f"data_root={root}", "device=cpu"]


def by_hand(root):
    """The time scales of all units over the test text, step by step."""
    from timescales.tasks import Words

    rnns, vectors, _ = layers()
    task = Words(data_root=str(root), allow_partial=True, embedding=EMBEDDING)
    text = task.streams["test"].flatten().long()[:-1]
    gates = [[], []]
    states = [(torch.zeros(size), torch.zeros(size)) for size in HIDDEN]
    with torch.no_grad():
        for word in text:
            x = vectors[word]
            for k, rnn in enumerate(rnns):
                h, c = states[k]
                pre = rnn.weight_ih_l0 @ x + rnn.bias_ih_l0 + rnn.weight_hh_l0 @ h + rnn.bias_hh_l0
                i, f, g, o = pre.chunk(4)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                x = o.sigmoid() * c.tanh()
                states[k] = (x, c)
                gates[k].append(f.sigmoid().double())
    return torch.cat([timescale_of_gate(torch.stack(layer).mean(0)) for layer in gates])


@pytest.mark.parametrize(
    "state",
    [torchs(), torchs("model.core."), torchs(tied=False), awds(), awds(False), {"state_dict": awds(), "epoch": 3}],
    ids=["torch", "below a prefix", "untied", "AWD-LSTM", "AWD-LSTM without the dropped weights", "checkpoint"],
)
def test_the_time_scales_of_every_form_are_those_by_hand(tmp_path, root, state):
    read = weights.read(saved(tmp_path, state))
    assert (read.sizes, read.input_size, len(read.embedding)) == (list(HIDDEN), EMBEDDING, TYPES)
    found = weights.study(read, settings(root))
    times = torch.tensor(sorted(by_hand(root).tolist(), reverse=True))
    assert [row["timescale"] for row in found.rows] == pytest.approx(times.tolist(), rel=1e-4)
    assert found.values == pytest.approx(timescale_law.fit(times), abs=1e-6)
    assert found.title.endswith("lm.pt, ptb_word")
    assert any("loss" in note for note in found.notes)


def test_without_a_text_the_biases_speak(tmp_path):
    rnns, *_ = layers()
    found = weights.study(weights.read(saved(tmp_path, awds())), [])
    bias = torch.cat([(rnn.bias_ih_l0 + rnn.bias_hh_l0).detach().chunk(4)[1] for rnn in rnns]).double()
    assert [row["timescale"] for row in found.rows] == pytest.approx(timescale_of_gate(bias.sigmoid()).tolist())
    assert [row["layer"] for row in found.rows] == [1] * HIDDEN[0] + [2] * HIDDEN[1]
    assert "only from the biases" in found.notes[0]


def test_words_with_other_numbers_are_noticed(tmp_path, root):
    """A readout that is certain of the wrong word does worse than chance."""
    state = torchs(tied=False)
    state["decoder.bias"] = torch.full((TYPES,), -20.0)
    state["decoder.bias"][-1] = 20.0
    found = weights.study(weights.read(saved(tmp_path, state)), settings(root))
    assert "is above that of chance" in found.notes[-1]
    state["decoder.bias"] = torch.zeros(TYPES)
    state["decoder.weight"] = torch.zeros(TYPES, EMBEDDING)
    found = weights.study(weights.read(saved(tmp_path, state)), settings(root))
    assert "3.40 (at chance" in found.notes[-1] or "its loss, 3.40" in found.notes[-1]  # ln 30


def test_other_analyses_of_a_file(tmp_path, root):
    read = weights.read(saved(tmp_path, torchs()))
    found = weights.study(read, settings(root), "routing")
    assert found.rows[0]["ratio all words"] > 0.0
    without = {name: value for name, value in torchs().items() if "decoder" not in name}
    read = weights.read(saved(tmp_path, without))
    assert weights.study(read, settings(root)).values["alpha"] > 0.0  # a text can be read
    with pytest.raises(ConfigError, match="--only=routing needs the readout"):
        weights.study(read, settings(root), "routing")
    with pytest.raises(ConfigError, match="--only=routing needs a text: give a task"):
        weights.study(read, [], "routing")


def of(module):
    return dict(module.state_dict())


BROKEN = [
    ({"a.weight": torch.zeros(2, 2)}, "has no LSTM: no tensor of it is named like weight_ih_l0"),
    ({}, r"has no state_dict: torch.save\(model.state_dict\(\), FILE\) writes one"),
    ([1, 2], "has no state_dict"),
    (of(nn.GRU(3, 4)), "is a GRU: the analyses of a file are for LSTMs"),
    (of(nn.RNN(3, 4)), "is a plain RNN"),
    (of(nn.LSTM(3, 4, bidirectional=True)), "only LSTMs in one direction, without a projection"),
    (of(nn.LSTM(3, 4, proj_size=2)), "only LSTMs in one direction, without a projection"),
    ({"weight_ih_l0": torch.zeros(16, 3)}, "a layer has only weight_ih: weight_ih and weight_hh are needed"),
    ({f"{n}.{k}": v for n in "ab" for k, v in of(nn.LSTM(3, 4)).items()}, "do not fit together: layer 2"),
]


@pytest.mark.parametrize(("content", "words"), BROKEN, ids=[words[:20] for _, words in BROKEN])
def test_what_is_no_language_model_is_one_line(tmp_path, content, words):
    with pytest.raises(ConfigError, match=words) as error:
        weights.read(saved(tmp_path, content))
    assert "\n" not in str(error.value)


def test_no_code_of_a_file_is_run(tmp_path):
    class Harm:
        def __reduce__(self):
            return (open, (str(tmp_path / "harm"), "w"))

    torch.save({"weight_ih_l0": Harm()}, tmp_path / "lm.pt")
    with pytest.raises(ConfigError, match=r"has more than tensors.*torch.save\(model.state_dict\(\), FILE\)"):
        weights.read(tmp_path / "lm.pt")
    assert not (tmp_path / "harm").exists()
    for content in (b"", b"x" * 100, pickle.dumps(3, 2)):
        (tmp_path / "lm.pt").write_bytes(content)
        with pytest.raises(ConfigError, match=r"cannot be read as a file of torch\.save"):
            weights.read(tmp_path / "lm.pt")


def test_a_text_that_does_not_fit_is_one_line(tmp_path, root):
    read = weights.read(saved(tmp_path, torchs() | {"encoder.weight": torch.zeros(7, EMBEDDING)}))
    with pytest.raises(ConfigError, match=r"its embedding is of \(7, 6\), and task=ptb_word needs \(30, 6\)"):
        weights.study(read, settings(root))
    read = weights.read(saved(tmp_path, torchs()))
    assert weights._config(read, settings(root))["device"] == "cpu"  # as asked for, also where there is a GPU
    for words, line in (
        (["task=copy"], "reads 6 inputs a step, and task=copy gives 10"),
        (["task=ptb_wrd"], "did you mean ptb_word?"),
        ([*settings(root), "model.hidden_size=3"], "leave out model settings"),
        ([*settings(root), "++model.bias=false"], "leave out model settings"),
        ([*settings(root), "task.lenth=3"], "did you mean task.length"),
    ):
        with pytest.raises(ConfigError, match=line) as error:
            weights.study(read, words)
        assert "\n" not in str(error.value)
    bare = {name: value for name, value in torchs().items() if name.startswith("rnn.")}
    with pytest.raises(ConfigError, match="has no embedding"):
        weights.study(weights.read(saved(tmp_path, bare)), settings(root))


def test_the_command(analyse, tmp_path, root, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path, awds())
    said = analyse("--weights", path, *settings(root))
    assert "timescale_law/alpha" in said
    assert (tmp_path / "lm.pt-analysis" / "timescale_law.png").is_file()
    assert "only from the biases" in analyse("--weights", path, "--to", tmp_path / "here")
    assert (tmp_path / "here" / "timescale_law.csv").is_file()
    assert analyse("--weights", "nowhere.pt") == "error: --weights=nowhere.pt: No such file or directory"
    assert "--only=bins: no such analysis" in analyse("--weights", path, "--only", "bins")
    assert "--record is for a run" in analyse("--weights", path, "--record", "bins")
    assert "give a RUN_DIR, or --weights=FILE" in analyse("--only", "bins")
