"""One clear line for wrong input."""

import errno

import pytest
from quick import QUICK

from timescales.config import command_line, messages

QUICK = [*QUICK, "logger=none"]


LINES = [
    ("model=lstn", "did you mean lstm?"),
    ("taks.T=5", "did you mean task.T?"),
    ("task.TT=5", "did you mean task.T?"),
    ("lr=0.1", "lr: no such key; did you mean optimizer.lr?"),
    ("steps=9", "steps: no such key; did you mean loop.max_steps?"),
    ("training.epoch=9", "training.epoch: no such key; did you mean loop.max_epochs?"),
    ("model.layers=2", "model.layers: no such key; did you mean model.num_layers?"),
    ("hydra.sweeper.minuts=5", "hydra.sweeper.minuts: no such key; did you mean hydra.sweeper.minutes?"),
    ("hydra.sweeper.seed=5", "hydra.sweeper.seed: no such key; --cfg hydra shows all of them"),
    ("loop.max_step=1", "did you mean loop.max_steps?"),
    ("model=lstm,plstm", "model=lstm,plstm: several values are a sweep, which takes -m\n"),
    ("model.hidden_size=8,9", "which takes -m; a list is written 'model.hidden_size=[8,9]'"),
    ("seed=abc", "seed must be a whole number; not abc"),
    ("loop.clip_norm=-1", "loop.clip_norm must be above 0"),
    ("loop.schedule=cosin", "loop.schedule must be one of none, cosine, linear, step; not cosin; did you mean cosine?"),
    ("loop.warmup=-1", "loop.warmup must be at least 0; not -1"),
    ("loop.warmup=0.5", "loop.warmup must be a whole number; not 0.5"),
    ("loop.schedule=step", "loop.schedule=step takes loop.step_size=N, N at least 1"),
    ("loop.schedule=step loop.step_size=0", "loop.step_size must be at least 1, or null; not 0"),
    ("loop.schedule=step loop.step_size=9 loop.gamma=2", "loop.gamma must be above 0 and at most 1; not 2.0"),
    ("loop.step_size=9", "loop.step_size is for loop.schedule=step: leave it out, or give loop.schedule=step"),
    ("loop.schedule=cosine loop.gamma=0.5", "loop.gamma is for loop.schedule=step: leave it out"),
    ("loop=3", "loop holds keys such as loop.max_epochs; not 3"),
    ("++loop=${seed}", "loop holds keys such as loop.max_epochs; not ${seed}"),
    ("task.name=[a]", "task.name must be a word of letters, digits"),
    ("loop.patience=x loop.patience=3", "loop.patience must be a whole number or null; not x"),
    ("resume=x", "resume must be true or false; not x"),
    ("device=[cpu]", "device must be a text; not [cpu]"),
    ("engine=[a]", "engine must be one of auto, eager, fused, compiled, cudnn; not [a]"),
    ("seed=${nope}", "seed=${nope}: ${...} must name a key that --cfg job shows"),
    ("seed='${'", "seed='${': ${...} must name a key that --cfg job shows"),
    ("hydra.callbacks=${oc.dict.keys:model}", "=${oc.dict.keys:model}: has no effect here: leave it out"),
    ("data_root=${oc.env:NOPE}", "or a variable that is set"),
    ("~seed=3", "seed must not be deleted"),
    ("~nothing", "nothing: no such key; --cfg job shows all of them"),
    ("~optimizer.lr=7", "~optimizer.lr=7: write ~optimizer.lr alone to delete it"),
    ("~", "~: cannot be read; write key=value"),
    ("~loop", "loop must not be deleted"),
    ("~model", "~model: model takes one of these names: cfc, chrono,"),
    ("model=[1]", "model=[1]: model takes one of these names: cfc, chrono,"),
    ("model=${seed}", "model=${seed}: model takes one of these names: cfc, chrono,"),
    ("+model=plstm", "+model=plstm: model is chosen already: write model=NAME alone"),
    ("++model=plstm", "++model=plstm: model is chosen already: write model=NAME alone"),
    ("model@x=plstm", "model@x=plstm: cannot be read; write key=value"),
    ("x[0]=3", "x[0]=3: cannot be read; write key=value, a key with letters, digits, _ and dots alone, "),
    ("=3", "error: =3: cannot be read; write key=value"),
    ("seed=range(3)", "seed=range(3): several values are a sweep, which takes -m\n"),
    ("-m seed=range(nan)", "error: seed=range(nan): write a range of finite numbers, with a step that is not 0"),
    ("-m seed=range(0,3,0)", "error: seed=range(0,3,0): write a range of finite numbers, with a step that is not 0"),
    ("-m hydra.sweeper.minutes=1,2", "give one value: a sweep is over settings of runs"),
    ("-m task.T=2 optimizer.lr=tag(log,interval(1,2))", "error: optimizer.lr=tag(log,interval(1,2)): a range is for"),
    ("-m model.hidden_size=glob(*)", "error: model.hidden_size=glob(*): there is no such name"),
    ("hydra.run={dir:x}", "hydra.run={dir:x}: has no effect here: leave it out; there are run_dir=DIR and"),
    ("-m hydra/sweeper=basic hydra.job={chdir:true}", "hydra.job={chdir:true}: has no effect here: leave it out"),
    ("--cfg nope seed=1", "--cfg takes another value: 'nope' (choose from 'job', 'hydra', 'all')"),
    ("seed=???", "seed has no value: give seed=..."),
    ("hydra.mode=nope", "hydra.mode must be of another kind; --cfg hydra shows it; not nope"),
    ("--cfg job --package nope", "--package=nope: no such key"),
    ("--config-dir", "--config-dir takes another value: expected one argument"),
    ("--config-dir=nowhere", "no such folder; give one that there is"),
    ("--config-name=nope", "--config-name=nope: leave it out"),
    ("device=cdua", "did you mean cuda?"),
    ("device=gpu", "did you mean cuda?"),
    ("--model plstm", "a setting is written model=..., without dashes"),
    ("engine=egaer", "did you mean eager?"),
    ("task.T=-4", "T must be at least 0"),
    ("task.T=1.5", "task.T must be a whole number; not 1.5"),
    ("task.T=null", "task.T must be a whole number; not null"),
    ("task.T=true", "task.T must be a whole number; not true"),
    ("task.layout=papre", "layout must be one of paper, authors, tallec, gu"),
    ("task.batch_size=0", "batch_size must be at least 1"),
    ("model.hidden_size=0", "hidden_size must be greater than zero"),
    ("model.dropout=1.5", "dropout should be a number in range [0, 1], not 1.5"),
    ("model.forget_init={law:chrono}", "check T_max"),
    ("model.frozen=[forgte]", "frozen names the gates"),
    ("+model.hiden_size=5", "did you mean hidden_size?"),
    ("optimizer.lr=-1", "learning rate"),
    ("model._target_=os.system", "model._target_: os.system is no RNN"),
    ("model._target_=LSTM", "model._target_ must be module.class, such as timescales.LSTM; not 'LSTM'"),
    ("model._target_=my_gate.Mine", "there is no my_gate.Mine (No module named 'my_gate'; PYTHONPATH must name its"),
    ("model=gated model.gate=urr", "model=gated: gate must be one of -, c, o, u, r, om, um, or, ur; not 'urr'"),
    ("model=gated model.gate=om model.hidden_size=9", "hidden_size 9 must be a multiple of downsize 16"),
    ("+model.head_size=many", "model.head_size must be a whole number or a list of whole numbers or null; not many"),
    ("+model.head_size=0", "model=lstm: head_size must be at least 1, or null for no head"),
    ("model._target_=timescales.LSTMM", "there is no timescales.LSTMM"),
    ("model._target_=torch.hub.load", "torch.hub.load is no RNN"),
    ("model._target_=5", "model._target_ must be module.class, as in conf/model/*.yaml; not 5"),
    ("~task._target_", "task._target_ must be module.class"),
    ("~model.name", "model.name must be a word of letters, digits"),
    ("optimizer.lr=null", "optimizer.lr must be a number; not null"),
    ("optimizer=adam optimizer.betas=[0.9]", "optimizer.betas must be a list of 2"),
    ("seed=99999999999999999999999", "seed must be at least 0 and below 2^63"),
    ("+foo=1", "foo: no such key"),
    ("+seed=1", "seed is there already: write seed=..., without +"),
    ("loop={foo:1}", "loop.foo: no such key"),
    ("+loop.foo=1", "loop.foo: no such key"),
    ("loop.log_one_over_e=0", "loop.log_one_over_e must be at least 1, or null; not 0"),
    ("model=exprnn loop.log_one_over_e=5", "loop.log_one_over_e must be null here: ExpRNNCell has no forget gate"),
    ("hydra/launcher=nowhere", "hydra/launcher=nowhere: no such hydra/launcher (there are joblib, slurm)"),
    ("table=chien_table3 hydra/sweeper=basic", "hydra/sweeper=basic: a table has a sweeper of its own"),
    ("--resolve", "--resolve takes --cfg job, too"),
    ("task.T=[1", "cannot be read"),
    ("model", "write key=value"),
    ("--run", "give only one of --run, --multirun"),
    ("model=mts model.forget_init=3", "error: model.forget_init: no such key; there is one with model="),  # no _target_
    ("task=pmnist data_root=nothing", "data_root=DIR or TIMESCALES_DATA"),
    ("task=dyck2 optimizer.name=mine", "optimizer.name=mine: the learning rate here is for adam; give optimizer.lr="),
    ("+model.batch_first=true", "model.batch_first: every task gives steps first, (S, B, ...): leave it out"),
    ("-m hydra.sweeper.minutes=${.name}", "hydra.sweeper.minutes: ${...} must name a key that --cfg job shows"),
    ("hydra/sweeper=basic ++task.time=4", "error: task.time is no argument of"),  # Hydra would name the job before
    ("-m model=lstm,plstn", "error: model=plstn: no such model; did you mean plstm?"),
    ("engine=graph", "not graph; engine=compiled runs in its place"),
    ("-m engine=eager,fusd", "engine must be one of auto, eager, fused, compiled, cudnn; not fusd; did you mean"),
    ("-m loop.max_epochs=2,0", "loop.max_epochs must be at least 1; not 0"),
    ("-m task.T=2,3 task.TT=1,2", "task.TT: no such key; did you mean task.T?"),
    ("-m model=gru,janet model.epsilon=.1", "model.epsilon: no such key; there is one with model=cornn or pgru or "),
    ("-m model=plstm,lstm model.epsilom=.1", "model.epsilom: no such key; did you mean model.epsilon?"),
    ("-m hydra/sweeper=basic model=plstm,pgru model.epsilon=.1", "there is one with model=cornn or pgru or plscan or "),
    ("table=chien_copi", "table=chien_copi: no such table; did you mean chien_copy?"),
    ("table=chien_copy task.TT=3", "task.TT: no such key; did you mean task.T?"),
    ("table=chien_copy model=lstm,plstn", "model=plstn: no such model; did you mean plstm?"),
    ("table=chien_copy rung=t20O", "rung=t20O: no such rung; did you mean t20?"),
    ("table=chien_copy profile=tny", "profile: no such key"),
    ("table=chien_copy skip=everything", "skip must be one of local, committed; not everything"),
    ("table=chien_copy hydra.sweeper.minutes=0", "hydra.sweeper.minutes must be a number above 0, or null; not 0"),
    ("table=chien_copy --cfg job", "--cfg shows one: make plan TABLE=chien_copy lists them"),
    ("-m table=chien_copy,chien_table3", "table=chien_copy,chien_table3: give one value"),
    ("profile=tiny", "rung=small is a size of a table: give table=NAME too"),
    ("force=stalle", "force must be one of true, false, stale; not stalle; did you mean stale?"),
    ("-m hydra.sweeper=x", "hydra.sweeper=x: has no effect here: leave it out"),
    ("run_dir=/proc/nowhere", "choose another place with run_dir=DIR"),
]


@pytest.mark.parametrize(("wrong", "right"), LINES)
def test_one_clear_line(train, tmp_path, wrong, right):
    quick = ["logger=none"] if wrong.startswith(("task=", "table=", "-m table=")) else QUICK  # other tasks have no T
    outcome = train(*quick, *wrong.split(), *(["-m"] if wrong == "--run" else []))
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
    assert messages.one_line(error) == f"/place/x/lock: Permission denied; {places}"
    assert messages.one_line(PermissionError(errno.EACCES, "Permission denied")) is None  # of no file: a bug


@pytest.mark.parametrize("package", ["launcher=joblib", "launcher=slurm", "sweeper=optuna"])
def test_packages_that_are_not_installed_are_named(train, monkeypatch, package):
    monkeypatch.setattr(command_line.importlib.util, "find_spec", lambda name: None)
    outcome = train("-m", *QUICK, f"hydra/{package}")
    extra = "optuna" if "optuna" in package else "launchers"
    line = f"error: hydra/{package} takes a package that is not here: pip install -e '.[{extra}]'\n"
    assert (outcome.status, outcome.err) == (1, line)
