PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= exhume-run

.PHONY: audit test lint bench clean

audit: $(VENV)/.installed          ## audit the embedded example and say where the report is
	$(BIN)/exhume audit --out $(OUT)

test: $(VENV)/.installed           ## the whole test suite
	$(BIN)/python -m pytest -n auto --dist loadgroup

lint: $(VENV)/.installed           ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed          ## every benchmark, as ratios taken in one run
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
