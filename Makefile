# `make help` lists the targets. Every target that needs an environment creates .venv and installs the package into it.
PYTHON ?= python3
PY := .venv/bin/python
REQUIRED_TABLE = $(or $(TABLE),$(error name a table: make $@ TABLE=chien_table3))

.DEFAULT_GOAL := help
.PHONY: help demo tour tutorial docs reproduce reproduce-table1 reproduce-table2 reproduce-table3 small plan status report report-check atlas gallery site notebooks dashboard sensitivity test test-all test-slow test-slurm test-ecosystem test-clients faults lint format types bench gpu dist golden stub clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv: .venv/installed ## create .venv and install the package and all extras in pinned versions

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "timescales needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $@

demo: .venv/installed ## train an LSTM and a pLSTM on a task that needs long memory: 1 to 3 minutes on a quiet CPU
	$(PY) scripts/demo.py

tour: .venv/installed ## run docs/tour.md: train three models, write a gate, judge a claim: two minutes on a quiet CPU
	$(PY) scripts/tour.py

tutorial: .venv/installed ## run the tutorial, from a first run to your own gate and table: one minute, writes to runs/
	$(PY) docs/tutorial/tutorial.py

docs: site ## the same as `make site`, by its older name

reproduce-table1: ## reproduce table 1 of Chien et al. 2021: pixel-by-pixel digits
	$(MAKE) reproduce TABLE=chien_table1

reproduce-table2: ## reproduce table 2 of Chien et al. 2021: character-level language models
	$(MAKE) reproduce TABLE=chien_table2

reproduce-table3: ## reproduce table 3 of Chien et al. 2021: frequency discrimination
	$(MAKE) reproduce TABLE=chien_table3

reproduce: .venv/installed ## run a table and write a report of your runs: TABLE=chien_copy (RUNG=t100, or HOURS=2: the largest rung that fits)
	$(PY) scripts/reproduce.py $(REQUIRED_TABLE) $(if $(RUNG),--rung $(RUNG)) $(if $(HOURS),--hours $(HOURS)) $(ARGS)

small: .venv/installed ## run the first rung of a table's ladder, planned for a quarter of an hour on one core: TABLE=chien_copy
	$(PY) scripts/reproduce.py $(REQUIRED_TABLE) --rung small $(ARGS)

plan: .venv/installed ## list the runs of a table with their state: TABLE=chien_table3 (ARGS="--rung small seed=200")
	$(PY) scripts/status.py $(REQUIRED_TABLE) --list $(ARGS)

status: .venv/installed ## show which runs of each table are done and what the rest costs (TABLE=... MEASURE=1)
	$(PY) scripts/status.py $(TABLE) $(if $(MEASURE),--measure)

report: .venv/installed ## write results/ and the numbers in the README from the records (TABLE=...)
	$(PY) scripts/report.py $(TABLE)
	$(PY) scripts/coverage.py

report-check: .venv/installed ## fail if a committed report differs from what its committed runs give
	$(PY) scripts/report.py --check

atlas: .venv/installed ## the atlas of memory: choose learning rates, train every cell on its rungs, write docs/atlas.md
	$(PY) train.py table=ours_atlas_rates logger=csv $(ARGS)
	$(PY) train.py table=ours_atlas_plain_rates logger=csv $(ARGS)
	$(PY) scripts/report.py ours_atlas_rates ours_atlas_plain_rates
	$(PY) scripts/atlas.py
	$(PY) train.py table=ours_atlas logger=csv $(ARGS)
	$(PY) train.py table=ours_atlas_plain logger=csv $(ARGS)
	$(PY) scripts/report.py ours_atlas ours_atlas_plain
	$(PY) scripts/atlas.py

gallery: .venv/installed ## write a page for each of your runs, with its curve and analyses, runs/gallery: RUNS="runs/copy-*", by default all in runs/
	rm -rf runs/gallery
	$(PY) scripts/docs.py runs/gallery --runs $(or $(RUNS),$(patsubst %/record.json,%,$(wildcard runs/*/record.json)))

site: .venv/installed ## write documentation, results and API reference for a browser or any static host, build/site: 2 minutes of CPU time
	rm -rf build/site
	$(PY) scripts/docs.py

notebooks: .venv/installed ## write docs/notebooks from the tour and the tutorial, which is run: half a minute
	$(PY) scripts/notebooks.py

dashboard: .venv/installed ## create the project's views at W&B, one for all tables and one for each (TABLE=...)
	$(PY) scripts/dashboard.py $(TABLE) $(ARGS)

sensitivity: .venv/installed ## vary the settings that the paper does not state and check the table's claims: TABLE=chien_table3
	$(PY) scripts/sensitivity.py $(REQUIRED_TABLE) $(ARGS)

# In three calls: a worker keeps what its tests have loaded, and so stays below 1 GB.
EVERYDAY := $(PY) -m pytest -n 2 --dist loadfile -m "not slow and not full"
test: .venv/installed lint types ## run lint, types and the tests, of large products of cases some: 8 to 11 minutes on 2 cores, up to 14 the first time
	$(EVERYDAY) tests/nn
	$(EVERYDAY) tests/analysis tests/dropin tests/papers tests/reports tests/tasks
	$(EVERYDAY) $(addprefix --ignore=tests/,nn analysis dropin papers reports tasks)

test-all: .venv/installed ## run all tests that are neither slow nor need a GPU (PART=2/4: of what make test leaves out, a part)
	$(PY) -m pytest -n 2 --dist loadfile -m "not slow" $(if $(PART),--part $(PART)) || test $$? -eq 5 # 5: no case is in this part

test-slow: .venv/installed ## run the tests that train for minutes
	$(PY) -m pytest -m slow

test-slurm: .venv/installed ## run a sweep on a real SLURM of one node, which is installed for it (apt, root): 4 minutes
	$(PY) tests/slurm/sweep.py

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

faults: .venv/installed ## kill runs, fill disks, damage files, type nonsense: an hour (ONLY=kill,fuzz runs some parts)
	$(PY) tests/faults/run.py $(if $(ONLY),--only $(ONLY))

lint: .venv/installed ## check the code with ruff
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: .venv/installed ## format the code with ruff and fix what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: .venv/installed ## check types with mypy
	$(PY) -m mypy

bench: .venv/installed ## time a training step beside other libraries: half an hour (ONLY=A,memory runs some sections)
	$(PY) scripts/bench/bench.py $(if $(ONLY),--only $(ONLY))

stub: .venv/installed ## write timescales/__init__.pyi, the signatures for editors and type checkers
	$(PY) scripts/stub.py

dist: .venv/installed ## build the wheel and the sdist, dist/, and check their version (TAG=v1.1.0)
	$(PY) scripts/release.py --no-isolation $(if $(TAG),--tag $(TAG))

golden: .venv/installed ## write the golden curves again: only when numbers are meant to change (NEW=1: of new models)
	$(PY) tests/support/golden.py $(if $(NEW),--missing)

# No .venv for this target: a machine with a GPU has its own torch.
gpu: ## on a machine with a GPU: check every cell, time the engines, train a small network, in six minutes
	$(PYTHON) scripts/bench_gpu.py

clean: ## remove .venv, caches and build outputs; keep runs/
	rm -rf .venv .venv-ecosystem .venv-clients .mypy_cache .ruff_cache .pytest_cache build dist
