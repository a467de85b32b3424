# Everything goes through one virtual environment.  EXTRAS picks what is installed: `make setup EXTRAS=gpu,gym,dev`.
PYTHON ?= python3
EXTRAS ?= cpu,smollm,gym,dev
VENV   ?= .venv

BIN   := $(VENV)/bin
STAMP := $(VENV)/.setup-$(shell echo '$(EXTRAS)' | tr ',' '-')

.DEFAULT_GOAL := help
.PHONY: help setup train test check docs bench clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'
	@echo "  variables: PYTHON=$(PYTHON) EXTRAS=$(EXTRAS) VENV=$(VENV)"

setup: $(STAMP)  ## make the virtual environment and install the package with its extras

$(STAMP): pyproject.toml setup.py scripts/repair_torchvision.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	$(BIN)/python scripts/repair_torchvision.py
	touch $@

train: setup  ## the three-minute run on a CPU; more with ARGS="steps=50 algorithm=dapo"
	$(BIN)/rlvr train $(ARGS)

test: setup  ## all tests
	$(BIN)/python -m pytest $(ARGS)

check: setup  ## lint, formatting and types
	$(BIN)/ruff check rlvr tests scripts conf setup.py
	$(BIN)/ruff format --check rlvr tests scripts conf setup.py
	$(BIN)/mypy rlvr

docs: setup  ## regenerate docs/config.md
	$(BIN)/rlvr config reference --write docs/config.md

bench: setup  ## measure, as ratios, what the docs claim
	for script in scripts/bench/*.py; do $(BIN)/python $$script; done

clean:  ## remove what was built, not what was run
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find rlvr tests scripts conf -name __pycache__ -type d -prune -exec rm -rf {} +
