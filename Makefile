# Everything goes through one virtual environment.  EXTRAS picks what is installed: `make setup EXTRAS=gpu,gym,dev`.
PYTHON ?= python3
EXTRAS ?= cpu,smollm,gym,sweep,dev
VENV   ?= .venv

BIN   := $(VENV)/bin
STAMP := $(VENV)/.setup-$(shell echo '$(EXTRAS)' | tr ',' '-')

.DEFAULT_GOAL := help
.PHONY: help setup train test check docs bench lab lab-starts lab-quick clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'
	@echo "  variables: PYTHON=$(PYTHON) EXTRAS=$(EXTRAS) VENV=$(VENV)"

setup: $(STAMP)  ## make the virtual environment and install the package with its extras

$(STAMP): pyproject.toml setup.py scripts/install_bare.py scripts/repair_torchvision.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	$(BIN)/python scripts/install_bare.py '$(EXTRAS)'
	$(BIN)/python scripts/repair_torchvision.py
	touch $@

train: setup  ## the run of a minute and a half on a CPU; more with ARGS="steps=50 algorithm=dapo"
	$(BIN)/rlvr train $(ARGS)

test: setup  ## all tests, two files at a time; fewer with ARGS="tests/ops -x"
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

check: setup  ## lint, formatting and types
	$(BIN)/ruff check rlvr tests scripts conf setup.py
	$(BIN)/ruff format --check rlvr tests scripts conf setup.py
	$(BIN)/mypy rlvr

docs: setup  ## regenerate docs/config.md
	$(BIN)/rlvr config reference --write docs/config.md

bench: setup  ## measure, as ratios, what the docs claim; less with ARGS=quick, or with ARGS="only=floor,peer"
	$(BIN)/python scripts/bench $(ARGS)

LAB := lab_collapse lab_starts lab_worked lab_prolong lab_one_rollout lab_half_unsolvable
STARTS := runs/lab_starts_from

lab: setup lab-starts  ## the laboratory: its runs (some hours on two cores), and docs/laboratory.md from them
	for arms in $(LAB); do $(BIN)/rlvr arms $$arms hydra/launcher=submitit_local $(ARGS) || exit 1; done
	$(BIN)/python scripts/laboratory.py

lab-starts: setup  ## the policies that lab_starts begins from: each seed's best and last of DAPO on few sums
	$(BIN)/rlvr train -m experiment=lab_collapse seed=0,1,2,3,4 run.name=lab_starts_from checkpoint.every=25 \
		checkpoint.best=true hydra/launcher=submitit_local hydra.sweep.dir=$(STARTS)
	for seed in 0 1 2 3 4; do \
		run=$$(echo $(STARTS)/*-seed-$$seed-*) to=$(STARTS)/seed$$seed; \
		test -d $$to/collapsed || $(BIN)/rlvr export $$run --to $$to/collapsed || exit 1; \
		test -d $$to/best || $(BIN)/rlvr export $$run --best --to $$to/best || exit 1; \
	done

lab-quick: setup  ## a small laboratory in under ten minutes; its report is runs/lab_quick/report/report.html
	$(BIN)/rlvr arms lab_quick hydra/launcher=submitit_local $(ARGS)

clean:  ## remove what was built, not what was run
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find rlvr tests scripts conf -name __pycache__ -type d -prune -exec rm -rf {} +
