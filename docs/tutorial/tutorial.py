# %% [markdown]
# # From the demo to a model of your own
#
# `make demo` has trained two networks. Here you train one yourself, read its record, add a model of your own in one
# file and one yaml, and let a small table compare the two. Nothing in the package is changed. It takes about a minute:
# `make tutorial`, or cell by cell in an editor that knows `# %%`.
#
# Commands are shown as you would type them in a checkout. In an installed package `timescales-train` is
# `python train.py`.

# %%
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent if "__file__" in globals() else Path("docs/tutorial")
ROOT = HERE.resolve().parents[1]
FOLDER = Path("runs/mine")  # your own folder: anywhere will do
shutil.copytree(HERE, FOLDER, dirs_exist_ok=True, ignore=shutil.ignore_patterns("tutorial.py", "__pycache__"))
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER.resolve()), str(ROOT)])  # lets commands import decay.py


def shell(command: str) -> str:
    """Show a command, run it, show what it prints, and return that."""
    program, script, *words = shlex.split(command)
    assert program == "python"
    done = subprocess.run([sys.executable, ROOT / script, *words], stdout=subprocess.PIPE, text=True, check=True)
    print(f"$ {command}\n{done.stdout}")
    return done.stdout


# %% [markdown]
# ## A run
#
# The task is the demo's: is the period of a wave, seen at irregular moments, between 5 and 6? The network reads the
# points of the wave one after another and is not told when they were taken. We train a small LSTM for ten short epochs:

# %%
SMALL = (
    "task.train_size=1000 task.test_size=1000 task.batch_size=50 "
    "model.hidden_size=32 optimizer.lr=0.01 loop.max_epochs=10 logger=csv device=cpu"
)
printed = shell(f"python train.py task=frequency model=lstm {SMALL}")

# %% [markdown]
# A run is a folder whose name ends with a hash of its settings: the same command again would say `finished, skipped`.
# `record.json` has the outcome, all settings and every validation, and `best.pt` has the weights. `curve.csv` has what
# was logged: training losses, time scales and validations.

# %%
(run,) = re.findall(r"runs/frequency-\S+", printed)
record = json.loads((Path(run) / "record.json").read_text())
print(record["status"], record["parameters"], "parameters")
for row in record["curve"][::3]:
    print(f"epoch {row['epoch']:3.0f}  valid/loss {row['valid/loss']:.3f}  valid/accuracy {row['valid/accuracy']:.3f}")

# %% [markdown]
# Half of the answers are right by chance, and the LSTM is not far above. It does not know how much time has passed.
#
# ## A model of your own
#
# Let a gate forget at a rate per unit of time: over a gap `dt` it keeps `exp(-rate dt)`. A cell is one step of
# equations; its names and shapes are those of `timescales.Cell`. This is the file:

# %%
print((FOLDER / "decay.py").read_text())

# %% [markdown]
# It can now be called like `torch.nn.LSTM`, with layers, masks, carried state and time between steps:

# %%
sys.path.insert(0, str(FOLDER))

import torch  # noqa: E402
from decay import Decay  # noqa: E402

torch.manual_seed(0)
rnn = Decay(input_size=3, hidden_size=8, num_layers=2, rate=0.1)
x, dt = torch.randn(20, 4, 3), torch.rand(20, 4)  # (steps, batch, features), (steps, batch)
output, h_n = rnn(x, dt=dt)
print("output", tuple(output.shape), "and the last h of each layer", tuple(h_n.shape))
print("time scales at the start:", rnn.timescales()[0])

# %% [markdown]
# One yaml names it and the arguments of its class:

# %%
print((FOLDER / "model" / "decay.yaml").read_text())
shell(f"python train.py --config-dir {FOLDER} task=frequency model=decay {SMALL}")

# %% [markdown]
# ## A table of your own
#
# One run says little. A table is one yaml: the runs, and the order that they should have. `rung=small` takes the first
# rung of the table's ladder; without it the runs have the full size.

# %%
print((FOLDER / "table" / "decay_waves.yaml").read_text())

# %% [markdown]
# The two runs above are among the six of the rung and are not trained again.

# %%
shell(f"python train.py --config-dir {FOLDER} table=decay_waves rung=small logger=csv device=cpu")
shell(f"python scripts/report.py --config-dir {FOLDER} decay_waves")

# %% [markdown]
# The report says whether the claim was seen at this size: whether the 95 % interval of the difference is above 0. It
# uses the last epoch (`select: last`); the lines above give each run's best one. `runs.csv` has every run.

# %%
report = (FOLDER / "results" / "decay_waves" / "table.md").read_text()
print(report[report.index("## At smaller sizes") : report.index("## Runs")])

# %% [markdown]
# Three seeds of a small network are an indication, not more. Without `rung=small` the table has three seeds at its full
# size. Where to go from here: `python scripts/analyse.py RUN_DIR` draws what a run has learned, `-m` sweeps
# over any settings, and CONTRIBUTING.md says how a model, a task or a table becomes part of the package.
