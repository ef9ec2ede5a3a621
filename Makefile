PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= exhume-run

.PHONY: audit test lint bench docs package clean

audit: $(VENV)/.installed          ## audit the embedded example and say where the report is
	$(BIN)/exhume audit --out $(OUT)

test: $(VENV)/.installed-dev    ## the whole test suite
	@# Commands that tests start would compile it each time, where Python may not write bytecode.
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -n auto

lint: $(VENV)/.installed-dev           ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev          ## every benchmark, as ratios taken in one run
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

docs: $(VENV)/.installed-dev       ## the site, in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "open build/site/index.html"

package: $(VENV)/.installed-dev    ## build sdist and wheel; audit in a new environment
	$(BIN)/python tools/clean_install.py

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-flower.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps --requirement requirements-flower.txt
	@touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
