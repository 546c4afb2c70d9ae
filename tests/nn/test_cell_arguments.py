"""Wrong arguments of every model: one line that says what to write."""

import math

import pytest

import timescales

I, H = 4, 6  # noqa: E741
FLAGS = [[2], [[0, 0]], [[0, -1]], [[True, 2]], [[0, 4]], 3, "ab", [[0, 1, 2]], [[0, 1], [1, 2]], [[[0], 1]]]
RMC_DOWNSIZE = "hidden_size / memories = 12 must be a multiple of downsize 16: give downsize=1, or 32 as hidden_size"
RMC_HEADS = "hidden_size / memories = 65 must be a multiple of heads 4: give 128 or 136 as hidden_size"
RMC_SIZE = "hidden_size is 128, but memories x memory_size is 2 x 512 = 1024: give that as hidden_size, or leave memory"
PERIODS = ((), 4, "4", [4, 0], [-1.0], ["4"], [math.nan], [True])
WRONG = [
    *(("PLSTM", {"epsilon": v}, "between 0 and 1") for v in (0, 1.0, -1e-3, math.nan, "small")),
    ("PLSTM", {"epsilon_form": "code"}, "paper or authors"),
    *(("PLSTM", {"power": v}, "learned or a number above 0") for v in (0.0, -0.2, math.inf, math.nan, True, "fixed")),
    *(("PLSTM", {"power_init": v}, "low <= high") for v in ((0.5, 0.1), (0.0, 1.5))),
    *(("PLSTM", {"power_init": v}, "two numbers") for v in ((0.1, 0.2, 0.3), 0.3)),
    ("MTSLSTM", {"num_layers": 2}, "1 or 3 layers"),
    ("MTSLSTM", {"freeze_gates": "fi"}, "if or ifgo"),
    ("MTSLSTM", {"alpha": 0}, "above 0"),
    ("MTSLSTM", {"quantiles": "ends"}, "interior or authors"),
    ("MTSLSTM", {"num_layers": 3, "layer1_bias": "log"}, "eq5 or log_t_minus_1"),
    ("MTSLSTM", {"layer1_bias": "log"}, "eq5 or log_t_minus_1"),
    ("MTSLSTM", {"layer1_timescale": 20}, "need num_layers=3"),
    ("MTSLSTM", {"num_layers": 3, "layer3_timescale": 0}, "numbers above 0"),
    ("GatedRNN", {"gate": "urr"}, "gate must be one of -, c, o, u, r, om, um, or, ur; not 'urr'"),
    ("GatedRNN", {"core": "rnn"}, "core must be lstm or gru"),
    ("GatedRNN", {"gate": "om", "downsize": 4}, "hidden_size 6 must be a multiple of downsize 4, or give downsize=1"),
    *(("GatedRNN", {"gate": "om", "downsize": 6, "core": core}, "a smaller downsize") for core in ("lstm", "gru")),
    ("RMC", {"hidden_size": 32, "gate": "om"}, "a smaller downsize"),
    ("GatedRNN", {"downsize": 0}, "downsize must be a whole number"),
    *(("GatedRNN", {"T_max": v, "gate": "c"}, "hidden_size, unknown, or a number above 2") for v in ("auto", 2, True)),
    ("GatedRNN", {"forget_bias": math.nan, "gate": "-"}, "finite number"),
    ("GatedRNN", {"gru_form": "update"}, "core=gru"),
    ("GatedRNN", {"core": "gru", "gru_form": "keep"}, "forget or update"),
    ("GatedRNN", {"core": "gru", "zoneout_c": 0.5}, "use zoneout_h"),
    ("GatedRNN", {"zoneout_h": 1.0}, "zoneout_h must be at least 0 and below 1"),
    ("GatedRNN", {"zoneout_c": -0.1}, "zoneout_c must be at least 0 and below 1"),
    *(("LeakyRNN", {"T_max": v}, "T_max must be a number of at least 1") for v in (0.5, math.inf, "auto", True)),
    ("LRU", {"r_min": 0.9, "r_max": 0.5}, "0 <= r_min <= r_max <= 1, not 0.9 and 0.5"),
    ("LRU", {"max_phase": 0.0}, "max_phase must be a number above 0 and at most 2 pi, not 0.0"),
    ("HGRN", {"lower_bound": 0.5}, "lower_bound"),
    ("HGRNCell", {"lower_bound": 1.0}, "lower_bound must be a number of at least 0 and below 1"),
    *(("LEM", {"delta": v}, "delta must be a number above 0, at most 1") for v in (0.0, 1.5, True)),
    ("CoRNN", {"delta": 0.0}, "delta must be a number above 0"),
    ("CoRNN", {"gamma": -1.0}, "gamma must be a number of at least 0"),
    ("CoRNN", {"epsilon": "auto"}, "epsilon must be a number of at least 0"),
    ("IndRNN", {"activation": "gelu"}, "activation must be relu or tanh"),
    *(("IndRNN", {"u_init": v}, "two numbers low <= high") for v in ((1.0, 0.5), 0.5)),
    *(("SRU", {"alphas": v}, "alphas must be numbers from 0 to below 1") for v in ((0.5, 1.0), ())),
    ("SRU", {"statistics": 0}, "statistics must be a whole number of at least 1"),
    ("RGLRU", {"c": 0.0}, "c must be a number above 0"),
    *(("RGLRU", {"decay_init": v}, "0 < low <= high < 1") for v in ((0.9, 1.0), (0.9, 0.5))),
    ("RGLRU", {"decay_init": 0.5}, "two numbers"),
    ("RGLRU", {"signed": 1}, "signed must be True or False"),
    *((layer, {"coupled": "no"}, "coupled must be True or False, not 'no'") for layer in ("PLSTM", "ELSTM")),
    *(("PhasedLSTM", {name: "no"}, f"{name} must be True or False") for name in ("peephole", "train_open_ratio")),
    *(("GatedRNN", {name: "no"}, f"{name} must be True or False") for name in ("train_bias", "subtract_bias")),
    *(("GRUD", {"flags": flags}, "flags") for flags in FLAGS),
    ("URNN", {"hidden_size": 7}, "hidden_size 7 counts real and imaginary parts.*: give 6 or 8$"),
    ("EURNN", {"hidden_size": 7}, "must be even: give 6 or 8"),
    ("EURNN", {"capacity": 0}, "capacity must be a whole number of at least 1"),
    ("EURNN", {"style": "butterfly"}, "style must be tunable or fft"),
    ("EURNN", {"hidden_size": 12, "style": "fft"}, "needs a power of two .* not 6: give style=tunable"),
    ("GORU", {"capacity": True}, "capacity must be a whole number of at least 1"),
    ("GORU", {"style": "full"}, "style must be tunable or fft"),
    ("GORU", {"style": "fft"}, "style=fft needs a power of two as the number of units, not 6"),
    ("NRU", {"memory_size": 65}, "memory_size x heads, 65 x 4, must be a square number, as 64 x 4 is"),
    ("NRU", {"memory_size": 0}, "memory_size must be a whole number of at least 1"),
    ("NRU", {"heads": 2.0}, "heads must be a whole number of at least 1"),
    ("SLSTM", {"heads": 0}, "heads must be a whole number of at least 1"),
    ("SLSTM", {"heads": 4}, "hidden_size 6 must be a multiple of heads 4"),
    ("SLSTM", {"forget": "tanh"}, "forget must be sigmoid or exp"),
    ("PhasedLSTM", {"period_init": (3, 1)}, "period_init must be two numbers low <= high"),
    ("PhasedLSTM", {"shift_init": 5}, "shift_init must be two numbers low <= high"),
    ("PhasedLSTM", {"open_ratio": 0}, "open_ratio must be a number above 0, at most 1"),
    ("PhasedLSTM", {"leak": -0.1}, "leak must be a number from 0 to 1"),
    *(("SuRNN", {"periods": v}, "periods must be a list of numbers above 0") for v in PERIODS),
    ("RMC", {"hidden_size": 130, "memories": 4}, "hidden_size 130 must be a multiple of memories 4: give 128 or 132"),
    ("RMC", {"hidden_size": 130, "heads": 4}, RMC_HEADS),
    ("RMC", {"hidden_size": 128, "memory_size": 512}, RMC_SIZE),
    ("RMC", {"hidden_size": 24, "gate": "om"}, RMC_DOWNSIZE),
    ("RMC", {"gate_style": "memory", "gate": "ur"}, "gate_style=memory is for gate='-': give gate_style=unit with"),
    ("RMC", {"gate_style": "vector"}, "gate_style must be unit or memory, not 'vector'"),
    ("RMC", {"gate": "x"}, "gate must be one of -, c, o, u, r, om, um, or, ur; not 'x'"),
    *(("RMC", {name: 0}, f"{name} must be a whole number") for name in ("memories", "heads", "blocks", "key_size")),
    ("JANET", {"T_max": 20, "forget_init": 1.0}, "give forget_init or T_max"),
    ("ChronoLSTM", {"T_max": 9, "forget_init": 1.0}, "ChronoLSTM chooses forget_init .* to LSTM"),
    ("MTSLSTM", {"frozen": ("input",)}, r"frozen itself: give frozen=\('input',\) to LSTM"),
    ("MTSLSTM", {"num_layers": 3, "forget_init": [1.0] * 3}, "MTSLSTM chooses forget_init itself"),
    *(("LSTM", {"frozen": [(gate,)]}, "input, forget, cell, output") for gate in ("forgot", "refine", 3)),
    ("LSTM", {"frozen": "forget"}, r"frozen is a list of gates: write \['forget'\]"),
    *(("LSTM", {"frozen": v}, "frozen is a list of gates") for v in (3, None, [3])),
    ("LSTM", {"num_layers": 2, "frozen": [["forget"], "input"]}, r"frozen is a list of gates: write \['input'\]"),
    ("LSTM", {"hidden_size": [3, 4]}, "lists 2 layers, num_layers is 1"),
    ("LSTM", {"num_layers": 2, "forget_init": [1.0]}, "forget_init lists 1"),
    ("LSTM", {"frozen": [("input",), ()]}, "frozen lists 2"),
    ("LSTM", {"hidden_size": 0}, "hidden_size"),
    ("PLSTM", {"hidden_size": "8"}, "hidden_size must be a whole number of at least 1, not '8'"),
]


@pytest.mark.parametrize(("layer", "arguments", "fix"), WRONG, ids=str)
def test_wrong_arguments_say_what_to_write(layer, arguments, fix):
    with pytest.raises(ValueError, match=fix) as raised:
        getattr(timescales, layer)(I, **{"hidden_size": H, **arguments})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("name", "arguments", "shown"), [
    ("GRUCell", {}, ""), ("CoRNNCell", {"gamma": 1.0}, ", delta=0.042, gamma=1.0, epsilon=4.7"),
    ("EURNNCell", {"capacity": 3}, ", capacity=3"),
    ("EURNNCell", {"style": "fft"}, ", style=fft"),  # which has no capacity
    ("GORUCell", {}, ", capacity=2"), ("GORUCell", {"style": "fft"}, ", style=fft"),
    ("PhasedLSTMCell", {"leak": 0.0}, ", leak=0, peephole=True"),
])  # fmt: skip
def test_a_cell_shows_its_sizes_and_settings(name, arguments, shown):
    assert repr(getattr(timescales, name)(I, 8, **arguments)) == f"{name}(4, 8{shown})"


INITIALIZERS = [
    *((spec, "chrono") for spec in ("chrno", True, {"T_max": 750}, {"law": None}, ["chrono"], {"law": ["chrono"]})),
    *((spec, "T_max") for spec in ("chrono", {"law": "chrono"}, {"law": "chrono", "t_max": 750})),
    ({"law": "chrono", "T_max": 750, "alpha": 1}, "alpha"),
    *(({"law": "chrono", "T_max": v}, "above 2") for v in (2, -5, "auto", True, math.nan, math.inf)),
    ({"law": "uniform", "low": 0}, "low"),
    *(({"law": "inverse_gamma", "alpha": v}, "above 0") for v in (0, -1.0, math.nan, math.inf, "large")),
    *(({"law": "inverse_gamma", "alpha": v}, "between 0.05 and 10000") for v in (0.04, 1e6)),
    ({"law": "inverse_gamma", "quantiles": "both"}, "interior or authors"),
    *(({"law": "assigned", "timescales": v}, "above 0") for v in ([], [3, 0], [3, "4"], 3)),
    ({"law": "assigned", "timescales": [1, 4], "form": "log_t_minus_1"}, "above 1"),
    ({"law": "assigned", "form": "eq6"}, "eq5 or log_t_minus_1"),
    *((spec, "number") for spec in ({"law": "constant", "b": "one"}, {"law": "constant", "b": math.nan})),
    *((spec, "number") for spec in (math.nan, math.inf)),
]


@pytest.mark.parametrize(("spec", "fix"), INITIALIZERS, ids=str)
def test_wrong_initializers_say_what_to_write(spec, fix):
    with pytest.raises(ValueError, match=fix):
        timescales.LSTMCell(2, 3, forget_init=spec)
