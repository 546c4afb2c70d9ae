# `make help` lists the targets. Every target that needs an environment creates .venv and installs the package into it.
PYTHON ?= python3
PY := .venv/bin/python
REQUIRED_TABLE = $(or $(TABLE),$(error name a table: make $@ TABLE=chien_table3))
PYTEST := $(PY) -m pytest -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help demo tour tutorial gallery bench gpu
.PHONY: reproduce reproduce-table1 reproduce-table2 reproduce-table3 small status report atlas
.PHONY: test test-slow test-ecosystem test-clients lint format pages golden site dist clean

##@ use

help: ## list the targets
	@awk -F ':.*## ' '/^##@ / {printf "%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/installed ## train an LSTM and a pLSTM on a task that needs long memory: one or two minutes on a quiet CPU
	$(PY) scripts/demo.py

tour: .venv/installed ## run docs/tour.md: train three models, write a gate, judge a claim: two minutes on a quiet CPU
	$(PY) scripts/notebooks.py

tutorial: .venv/installed ## run the tutorial, from a first run to your own gate and table: one minute, writes to runs/
	$(PY) docs/tutorial/tutorial.py

gallery: .venv/installed ## write a page for each of your runs, with its curve and analyses, runs/gallery (RUNS="runs/copy-*")
	rm -rf runs/gallery
	$(PY) scripts/docs.py runs/gallery --runs $(or $(RUNS),$(patsubst %/record.json,%,$(wildcard runs/*/record.json)))

bench: .venv/installed ## time a training step beside torch's LSTM on this CPU: half an hour (ONLY=A,memory runs some sections)
	$(PY) scripts/bench/bench.py $(if $(ONLY),--only $(ONLY))

# No .venv for this target: a machine with a GPU has its own torch.
gpu: ## on a machine with a GPU: check every cell, time the engines, train a small network, in six minutes
	$(PYTHON) scripts/bench_gpu.py

##@ reproduce

reproduce: .venv/installed ## run a table and write a report of your runs: TABLE=chien_copy (RUNG=t100, or HOURS=2: the largest rung that fits)
	$(PY) scripts/reproduce.py $(REQUIRED_TABLE) $(if $(RUNG),--rung $(RUNG)) $(if $(HOURS),--hours $(HOURS)) $(ARGS)

reproduce-table1: ## reproduce table 1 of Chien et al. 2021: pixel-by-pixel digits
	$(MAKE) reproduce TABLE=chien_table1

reproduce-table2: ## reproduce table 2 of Chien et al. 2021: character-level language models
	$(MAKE) reproduce TABLE=chien_table2

reproduce-table3: ## reproduce table 3 of Chien et al. 2021: frequency discrimination
	$(MAKE) reproduce TABLE=chien_table3

small: .venv/installed ## run the first rung of a table's ladder, planned for a quarter of an hour on one core: TABLE=chien_copy
	$(PY) scripts/reproduce.py $(REQUIRED_TABLE) --rung small $(ARGS)

status: .venv/installed ## show which runs of each table are done and what the rest costs (TABLE=..., LIST=1: each run, MEASURE=1)
	$(PY) scripts/status.py $(TABLE) $(if $(LIST),--list) $(if $(MEASURE),--measure) $(ARGS)

report: .venv/installed ## write results/ and the numbers in the README from the records (TABLE=...)
	$(PY) scripts/report.py $(TABLE)
	$(PY) scripts/pages.py coverage

atlas: .venv/installed ## the atlas of memory: choose learning rates, train every cell on its rungs, write docs/atlas.md
	$(PY) train.py table=ours_atlas_rates logger=csv $(ARGS)
	$(PY) train.py table=ours_atlas_plain_rates logger=csv $(ARGS)
	$(PY) scripts/report.py ours_atlas_rates ours_atlas_plain_rates
	$(PY) scripts/pages.py atlas
	$(PY) train.py table=ours_atlas logger=csv $(ARGS)
	$(PY) train.py table=ours_atlas_plain logger=csv $(ARGS)
	$(PY) scripts/report.py ours_atlas ours_atlas_plain
	$(PY) scripts/pages.py atlas

##@ develop

.venv: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "timescales needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $@

# In three calls: a worker keeps what its tests have loaded, and so stays below 1 GB.
test: .venv/installed lint ## check code and types and run the quick tests, which find faults of every kind: 2 to 8 minutes on two cores
	$(PYTEST) -m "not slow" tests/nn
	$(PYTEST) -m "not slow" tests/analysis tests/dropin tests/papers tests/reports tests/tasks
	$(PYTEST) -m "not slow" $(addprefix --ignore=tests/,nn analysis dropin papers reports tasks)

# The faults fork the test's process. Two of them hung in a worker that had run other files, so they have workers of their own.
# Most of a sweep on SLURM is waiting, and the tour is one process: they run beside the tests. SLURM needs apt and root.
# The shell has them ignore Ctrl-C, as it does with whatever runs in the background: the trap ends them.
test-slow: .venv/installed ## run the slow tests, a sweep on a SLURM of one node and the tour: 5 to 15 minutes on two cores
	@mkdir -p runs; { $(PY) tests/slurm/sweep.py && $(PY) scripts/notebooks.py; } > runs/beside.log 2>&1 & beside=$$!; \
	trap 'pkill -P $$beside' INT TERM; \
	$(PYTEST) -m slow --no-loadscope-reorder --ignore=tests/faults && $(PYTEST) --dist load -m slow tests/faults; \
	status=$$?; wait $$beside || { cat runs/beside.log; exit 1; }; cat runs/beside.log; exit $$status

test-ecosystem: .venv-ecosystem/installed ## run the tests with Lightning, skorch, accelerate, Optuna, Ray, ONNX and trackio in an environment of its own (2 GB): 5 minutes
	.venv-ecosystem/bin/python -m pytest tests/ecosystem

.venv-ecosystem/installed: pyproject.toml tests/ecosystem/requirements.txt tests/ecosystem/cells.txt
	$(PYTHON) -m venv .venv-ecosystem
	.venv-ecosystem/bin/python -m pip install --quiet --disable-pip-version-check -r tests/ecosystem/requirements.txt
	.venv-ecosystem/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/ecosystem/cells.txt -e .
	@touch $@

test-clients: .venv-clients/installed ## run other packages' tests and trainings on our engine, in an environment of its own (6 GB): results/clients.md
	.venv-clients/bin/python tests/clients/run.py

.venv-clients/installed: pyproject.toml tests/clients/requirements.txt
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check -r tests/clients/requirements.txt
	.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

lint: .venv/installed ## check the code with ruff and its types with mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: .venv/installed ## format the code with ruff and fix what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

pages: .venv/installed ## write generated pages and files: stub, matched units, docs, coverage, atlas, notebooks (ARGS="stub docs", ARGS=--check)
	$(PY) scripts/pages.py $(ARGS)

golden: .venv/installed ## write the golden curves again: only when numbers are meant to change (NEW=1: of new models)
	$(PY) tests/support/golden.py $(if $(NEW),--missing)

site: .venv/installed ## write documentation, results and API reference for a browser or any static host, build/site: 90 seconds of CPU time
	rm -rf build/site
	$(PY) scripts/docs.py

dist: .venv/installed ## build the wheel and the sdist, dist/, and check their version (TAG=v1.2.0)
	$(PY) scripts/release.py --no-isolation $(if $(TAG),--tag $(TAG))

clean: ## remove .venv, caches and build outputs; keep runs/
	rm -rf .venv .venv-ecosystem .venv-clients .mypy_cache .ruff_cache .pytest_cache build dist
