# `make help` lists what there is. Every target that needs it creates .venv and installs by itself.
PYTHON ?= python3
PY := .venv/bin/python
MINUTES ?= 9

.DEFAULT_GOAL := help
.PHONY: help demo tutorial docs reproduce reproduce-table1 reproduce-table2 reproduce-table3 tiny plan status report report-check gallery dashboard sensitivity test test-slow test-slurm torture lint format types bench gpu gpu-pack golden clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv: .venv/installed ## create .venv and install everything, pinned

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "timescales needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: .venv/installed ## train an LSTM and a pLSTM where memory decides: 1 to 3 minutes on a CPU
	$(PY) scripts/demo.py

tutorial: .venv/installed ## from a first run to a gate and a table of one's own: a minute, in runs/
	$(PY) docs/tutorial/tutorial.py

docs: .venv/installed ## API reference and tutorial as HTML, in build/docs
	$(PY) scripts/docs.py

reproduce-table1: ## Chien et al. 2021, table 1: pixel-by-pixel digits
	$(MAKE) reproduce TABLE=chien_table1

reproduce-table2: ## Chien et al. 2021, table 2: language models over characters
	$(MAKE) reproduce TABLE=chien_table2

reproduce-table3: ## Chien et al. 2021, table 3: frequency discrimination
	$(MAKE) reproduce TABLE=chien_table3

reproduce: .venv/installed ## any table or figure at paper size, then its report: TABLE=chien_table3 (ARGS="seed=0")
	$(PY) train.py table=$(or $(TABLE),$(error say which table: make $@ TABLE=chien_table3)) $(ARGS)
	$(PY) scripts/report.py $(TABLE)

tiny: .venv/installed ## its small-scale version for a CPU, then its report: TABLE=chien_table3
	$(PY) train.py table=$(or $(TABLE),$(error say which table: make $@ TABLE=chien_table3)) profile=tiny $(ARGS)
	$(PY) scripts/report.py $(TABLE)

plan: .venv/installed ## the runs of a table and what is done of them: TABLE=chien_table3 (ARGS="--profile tiny seed=0")
	$(PY) scripts/status.py $(or $(TABLE),$(error say which table: make $@ TABLE=chien_table3)) --list $(ARGS)

status: .venv/installed ## what is done of each table and what the rest costs (TABLE=..., MEASURE=1 times a few steps)
	$(PY) scripts/status.py $(TABLE) $(if $(MEASURE),--measure)

report: .venv/installed ## write results/ and the README's numbers from the records (TABLE=...)
	$(PY) scripts/report.py $(TABLE)

report-check: .venv/installed ## fail if a committed report is not what its committed runs give
	$(PY) scripts/report.py --check

gallery: .venv/installed ## all of results/ on one page, runs/gallery.html (RUNS="runs/..." adds their analyses)
	$(PY) scripts/gallery.py $(RUNS)

dashboard: .venv/installed ## the project's views at W&B, a front page and one a table (TABLE=... ARGS="--profile tiny")
	$(PY) scripts/dashboard.py $(TABLE) $(ARGS)

sensitivity: .venv/installed ## vary the settings that the paper does not state: TABLE=chien_table3
	$(PY) scripts/sensitivity.py $(or $(TABLE),$(error say which table: make $@ TABLE=chien_table3)) $(ARGS)

test: .venv/installed lint types ## lint, types and tests
	$(PY) -m pytest -n 2 -m "not slow and not gpu"

test-slow: .venv/installed ## the real trainings
	$(PY) -m pytest -m slow

test-slurm: .venv/installed ## a sweep on a real SLURM of one node, which it starts (apt, root): 4 minutes; else a line says why not
	$(PY) tests/slurm/sweep.py

torture: .venv/installed ## kill, fill disks, damage files, type nonsense; about an hour of one core (ONLY=kill,fuzz for some parts)
	$(PY) tests/faults/run.py $(if $(ONLY),--only $(ONLY))

lint: .venv/installed ## ruff: check and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: .venv/installed ## ruff: mend what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: .venv/installed ## mypy
	$(PY) -m mypy

bench: .venv/installed ## how fast is a step, next to its peers? half an hour (ONLY=A,memory for some sections)
	$(PY) scripts/bench/bench.py $(if $(ONLY),--only $(ONLY))

golden: .venv/installed ## write the golden curves anew: only when numbers are meant to change
	$(PY) tests/support/golden.py

# No .venv here: the machine with the GPU brings its own torch.
gpu: ## on a machine with a GPU: its tests, bench, short runs, unfinished table runs (MINUTES=25 PYTHON=... GPU="--parts ...")
	$(PYTHON) scripts/bench/gpu.py --minutes $(MINUTES) $(GPU)

gpu-pack: .venv/installed ## gather in gpu-pack/ what a bare GPU machine without network needs, at most 40 MB
	$(PY) scripts/bench/gpu_pack.py

clean: ## remove .venv, caches and what was built; runs/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache build dist gpu-pack
