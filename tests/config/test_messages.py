"""One clear line for wrong input."""

import errno

import pytest
from quick import QUICK

from timescales import errors

QUICK = [*QUICK, "logger=none"]
LINES = [
    # Hydra's and OmegaConf's words, with the nearest right name.
    ("model=lstn", "did you mean lstm?"),
    ("task.TT=5", "Could not override 'task.TT'. Key 'TT' is not in struct; did you mean task.T?"),
    ("lr=0.1", "did you mean optimizer.lr?"),
    ("model.layers=2", "did you mean model.num_layers?"),
    ("hydra.sweeper.minuts=5", "did you mean hydra.sweeper.minutes?"),
    ("seed=abc", "seed=abc. Value 'abc' of type 'str' could not be converted to Integer"),
    ("engine=fast", "expected one of [auto, eager, fused, compiled, cudnn]"),
    ("seed=${nope}", "Interpolation key 'nope' not found"),
    ("data_root=${oc.env:NOPE}", "Environment variable 'NOPE' not found"),
    ("task.T=[1", "[1"),
    ("-m task.T=2,3 task.TT=1,2", "did you mean task.T?"),
    ("hydra/launcher=nowhere", "Available options in 'hydra/launcher': basic joblib slurm"),
    # Ours, where theirs say nothing.
    ("-m model.hidden_size=glob(*)", "model.hidden_size=glob(*) selects no value"),
    ("-m task.T=2 optimizer.lr=tag(log,interval(1,2))", "a range is for hydra/sweeper=optuna"),
    ("loop.clip_norm=-1", "loop.clip_norm must be above 0"),
    ("loop.warmup=-1", "loop.warmup must be at least 0"),
    ("loop.max_epochs=0", "loop.max_epochs must be at least 1"),
    ("loop.schedule=step", "loop.step_size=N"),
    ("loop.step_size=9", "loop.schedule=step"),
    ("loop.schedule=step loop.step_size=0", "loop.step_size must be at least 1"),
    ("loop.schedule=step loop.step_size=9 loop.gamma=2", "loop.gamma must be above 0 and at most 1; not 2.0"),
    ("-m seed=0,-1", "seed must be at least 0 and below 2^63; not -1"),
    ("seed=99999999999999999999999", "seed must be at least 0 and below 2^63"),
    ("seeds=1001", "seeds must be at most 1000"),
    ("seeds=-2", "seeds must be at least 1"),
    ("seeds=many", "could not be converted to Integer"),
    ("force=stalle", "force must be true, false or stale"),
    ("logger.name=wand", "logger.name must be one of wandb"),
    ("device=gpu", "did you mean cuda?"),
    ("run_dir=/proc/nowhere", "choose another place with run_dir=DIR"),
    ("+foo.bar=1", "foo: no such key"),
    ("++loop.warmpu=1", "loop.warmpu: no such key; did you mean warmup?"),
    ("extend=", "no such run"),
    ("-m seed=range(3,0)", "seed=range(3,0) selects no value"),
    ("~model.name", "model.name must be a word of letters, digits"),
    ("model._target_=5", "model._target_ must be module.class"),
    ("optimizer.lr=${oc.env:HOME}", "${oc.env:...} is for data_root and run_dir only"),
    ("-m optimizer.lr=${oc.env:HOME}", "${oc.env:...} is for data_root and run_dir only"),
    ("hydra/launcher=joblib", "hydra/launcher=joblib is for sweeps: add -m"),
    ("skip=committed", "skip=committed is for a table or -m, without hydra/sweeper=NAME: leave it out here"),
    ("-m -cn other", "--config-name (-cn), --config-path (-cp) are for single runs"),
    ("table=chien_copy --config-path=other", "--config-name (-cn), --config-path (-cp) are for single runs"),
    ("-m extend=runs/x", "extend=runs/x continues one run: give it without -m"),
    # Found by random overrides, tests/faults/random_overrides.py.
    ("loop=${seed}", "loop holds keys such as loop.max_epochs; not 0"),
    ("optimizer=[a,1,true]", "bool"),
    ("loop='${oc.env:NOPE,null}' loop.max_steps=3", "Unexpected type for root"),
    ("task='one\ntwo'", "Could not find 'task/one two'"),
    ("~deterministic", "deterministic must not be deleted"),
    ("task._target_=..", "task._target_ must be module.class, such as timescales.LSTM; not '..'"),
    ("task.name=../../up", "task.name must be a word of letters"),
    ("model.name=[1]", "model.name must be a word of letters"),
    (f"run_dir={'x' * 300}", "choose another place with run_dir=DIR"),
    # What a class says of its arguments.
    ("task.T=-4", "T must be at least 0"),
    ("task.T=1.5", "task.T must be a whole number; not 1.5"),
    ("task.layout=papre", "layout must be one of paper, authors, tallec, gu"),
    ("task.batch_size=0", "batch_size must be at least 1"),
    ("model.hidden_size=0", "hidden_size must be greater than zero"),
    ("model.forget_init={law:chrono}", "check T_max"),
    ("+model.hiden_size=5", "did you mean hidden_size?"),
    ("model.frozen=[forgte]", "frozen names the gates"),
    ("optimizer.lr=-1", "learning rate"),
    ("optimizer.lr=null", "optimizer.lr must be a number; not null"),
    ("model._target_=os.system", "model._target_: os.system is not a subclass of RNN"),
    ("model._target_=my_gate.Mine", "there is no my_gate.Mine (No module named 'my_gate'; PYTHONPATH must name its"),
    ("model._target_=timescales.LSTMM", "there is no timescales.LSTMM"),
    ("model=gated model.gate=urr", "model=gated: gate must be one of -, c, o, u, r, om, um, or, ur; not 'urr'"),
    ("model=exprnn loop.log_one_over_e=5", "loop.log_one_over_e must be null for this model: ExpRNNCell has no"),
    ("task=pmnist data_root=nothing", "data_root=DIR or TIMESCALES_DATA"),
    ("task=dyck2 optimizer.name=mine", "optimizer.name=mine: the learning rate here is for adam; give optimizer.lr="),
    ("+model.batch_first=true", "model.batch_first: every task gives steps first, (S, B, ...): leave it out"),
    # Of tables.
    ("table=table3", "did you mean chien_table3 or gu_table3 or mahto_table3?"),
    ("table=chien_copi", "table=chien_copi: no such table; did you mean chien_copy?"),
    ("table=chien_copy task.TT=3", "did you mean task.T?"),
    ("table=chien_copy model=lstm,plstn", "did you mean plstm?"),
    ("table=chien_copy rung=t20O", "rung=t20O: no such rung; did you mean t20?"),
    ("table=chien_copy hydra.sweeper.minutes=0", "hydra.sweeper.minutes must be a number above 0, or null; not 0"),
    ("table=chien_copy seed=range(3,0)", "seed=range(3,0) selects no value"),
    ("-m table=chien_copy,chien_table3", "give one value"),
    ("table=chien_copy logger=csv,none", "logger=csv,none: give one value"),
    ("-m rung=small", "rung=small is a size of a table: give table=NAME too"),
    ("profile=tiny", "rung=small is a size of a table: give table=NAME too"),
]


@pytest.mark.parametrize(("wrong", "right"), LINES)
def test_one_clear_line(train, tmp_path, wrong, right):
    quick = ["logger=none"] if wrong.startswith(("task=", "table=", "-m table=")) else QUICK  # other tasks have no T
    outcome = train(*quick, *wrong.split(" "))
    assert outcome.status == 1, outcome
    assert len(outcome.err.strip().splitlines()) == 1, outcome
    assert outcome.err.startswith("error: ")
    assert right in outcome.err
    if wrong.startswith(("-m", "table=")):
        assert outcome.out == "", "before others are trained"
    assert not list((tmp_path / "runs").glob("*")), "a run that cannot be leaves no directory"


def test_the_line_for_a_file_that_is_out_of_reach_names_the_settings_that_choose_another():
    error = PermissionError(errno.EACCES, "Permission denied", "/place/x/lock")
    places = "choose another place with run_dir=DIR or data_root=DIR, or make room and give access there"
    assert errors.one_line(error) == f"/place/x/lock: Permission denied; {places}"
