# Every target sets up what it needs; a second call starts at once.
PY ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
LAB ?= lab

help:
	@echo "make demo     a first study on real data, end to end, in minutes"
	@echo "make test     the tests (CPU, offline)"
	@echo "make lint     ruff and mypy"
	@echo "make bench    speed against what one would write instead (QUICK=1: under two minutes, writes nothing)"
	@echo "make docs     the documentation as a site, in site/"
	@echo "make results  tables, figures and verdicts of results/ again, from the exported runs and without training"
	@echo "make campaign trains what the published results still lack (hours); make exports keeps what is finished"

$(VENV)/.core: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PY) -m venv $(VENV)
	@echo "installing saccade into $(VENV) (once)"
	@$(PIP) -e '.[web]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing the tools for tests (once)"
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.web: $(VENV)/.core
	@$(PIP) -e '.[web]'
	@touch $@

demo: $(VENV)/.web
	@$(BIN)/saccade demo --lab $(LAB)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist loadgroup

slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m '(slow or web) and not cluster' -rs

# Apart: a Ray cluster of two nodes in one process, which wants the machine for itself. Named, so that nothing else is read.
cluster: $(VENV)/.dev
	$(BIN)/python -m pytest -m cluster -rs tests/lab/test_cluster.py

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/ruff format --check -q src tests benchmarks examples docs
	$(BIN)/mypy

$(VENV)/.bench: $(VENV)/.dev
	@echo "installing the peers of the benchmark (once)"
	@$(PIP) -e '.[dev,bench]'
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

$(VENV)/.docs: $(VENV)/.core
	@echo "installing the tools for the documentation (once)"
	@$(PIP) -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python docs/make_api.py
	$(BIN)/python docs/make_pages.py
	$(BIN)/python docs/make_readme.py
	$(BIN)/python docs/make_results.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # not quietly: that would hide warnings from --strict too
	@echo "site/index.html"

# What results/ shows, study by study and at which scale. The runs behind it lie in results/exports without weights.
PUBLISHED = digits_on_backgrounds:large learning_curves:large attention_as_convolution:large local_structure:large block_ablations:large
EACH = set -e; for each in $(PUBLISHED); do study=$${each%%:*}; scale=$${each\#\#*:}; file=results/exports/$$study.jsonl.xz;

# Without training: every table, figure and verdict again from the exported runs. Studies without an export keep the
# tables that they have.
results: $(VENV)/.core
	@$(EACH) \
	  test -e $$file || continue; \
	  $(BIN)/saccade lab import $$file --lab $(LAB); \
	  $(BIN)/saccade report $$study --scale $$scale --lab $(LAB) --format md csv.xz --to results/$$study; \
	done

# Trains what the exported runs lack, which takes hours; stop it at any time, export what is finished, and go on later.
campaign: $(VENV)/.core
	@$(EACH) \
	  test ! -e $$file || $(BIN)/saccade lab import $$file --lab $(LAB); \
	  $(BIN)/saccade run $$study --scale $$scale --lab $(LAB); \
	done

exports: $(VENV)/.core
	@$(EACH) $(BIN)/saccade lab export $$file --study $$study --scale $$scale --lab $(LAB); done

.PHONY: help demo test slow cluster lint bench docs results campaign exports
