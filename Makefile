# Everything runs in a virtual environment of this checkout; Python 3.10+ and make are enough to start.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.ready

.PHONY: help demo test lint typecheck pytest bench clean

help:
	@echo "make demo   run the main job, kill it, restore it, compare"
	@echo "make test   ruff, mypy (strict) and pytest"
	@echo "make bench  records/s against a dict in mapPartitions"
	@echo "make clean  remove the virtual environment and caches"

$(SETUP): pyproject.toml scripts/ensure_java.sh
	@sh scripts/ensure_java.sh
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $(SETUP)

demo: $(SETUP)
	@$(BIN)/python examples/demo.py

test: lint typecheck pytest

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(SETUP)
	$(BIN)/mypy

pytest: $(SETUP)
	$(BIN)/python -m pytest

bench: $(SETUP)
	$(BIN)/python benchmarks/keyed_count.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache build *.egg-info
