# Everything runs in a virtual environment of this checkout; Python 3.10+ and make are enough to start.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Where there is a browser, as in .ci/run, the tests of the web page in it need selenium.
BROWSER := $(if $(WITH_BROWSER),-browser)
# One file for each step of the set-up that is done. What the extras of pyproject.toml require is installed
# while the package is compiled; ruff and mypy need not wait for the compiler.
TOOLS := $(VENV)/.has-compiler
COMPILED := $(VENV)/.has-compiled
REQUIRED := $(VENV)/.has-dev$(BROWSER)
SETUP := $(COMPILED) $(REQUIRED)
# The package without its compiled files: what is installed where there is no C compiler.
PURE := build/pure
# Real Flink, with which "make interop" moves state to and fro.
FLINK := build/flink
# What meets the files that are compiled elsewhere; the rest is the same code in both.
PURE_TESTS := tests/heap tests/keys tests/snapshots tests/ttl tests/types/test_types_in_state.py \
	tests/api/test_windows.py tests/operators/test_window_model.py tests/operators/test_window_ways.py \
	tests/operators/test_merging_windows.py tests/operators/test_window_operator.py
QUICK := not full and not slow
FULL := full and not slow
# The quick tier in four parts of about the same time, so that no part is left to run alone: whole jobs and the
# simulation of them; what waits for processes or looks into files; the tests on Spark, with what other systems
# read and write; all else.
JOBS := tests/master tests/simulation tests/pipelined
WAITING := tests/slots tests/monitor tests/state_access
ON_SPARK := tests/spark tests/packaging
CONNECTED := tests/sinks tests/connectors

# Tests start many short processes: without its bytecode, each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
# Another Spark is not the one of this virtual environment; tests/conftest.py has the same list.
unexport SPARK_HOME SPARK_CONF_DIR SPARK_REMOTE HADOOP_CONF_DIR
unexport PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS

.PHONY: help demo test test-full lint typecheck quick quick-jobs quick-waiting quick-on-spark full full-on-spark full-on-disk full-interpreted soak interop bench record docs dist clean

help:
	@echo "make demo       run the main job, kill it, restore it, compare; with -- --page on a web page"
	@echo "make test       the quick tier, minutes: ruff, mypy (strict), every room's tests, some jobs on Spark"
	@echo "make test-full  all that the quick tier leaves out: every job on Spark, many more simulated histories and"
	@echo "                modes, state tests with the interpreted core; most of an hour"
	@echo "make soak       ten million operations on the state map, long simulations, faults put in, many epochs, kill rounds, two hosts"
	@echo "make interop    the same program on real Flink (PyFlink and Java) and here, state moved between them; most of an hour"
	@echo "make bench      state and records/s against a dict, snapshots, epochs over much state, recovery"
	@echo "make record     all benchmarks three times, for docs/benchmarks.md; hours, can be interrupted"
	@echo "make docs       build the documentation into build/site"
	@echo "make dist       what is released, into dist: the sources, a wheel for this platform, a zip for spark-submit --py-files"
	@echo "make clean      remove the virtual environment and caches"

$(TOOLS): pyproject.toml scripts/ensure_java.sh scripts/requirements.py
	@sh scripts/ensure_java.sh
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python scripts/requirements.py build | $(PIP) -r /dev/stdin
	@touch $@

$(COMPILED): $(TOOLS) setup.py $(wildcard pyflinkstate/backends/*.py pyflinkstate/backends/*/*.py \
		pyflinkstate/api/interval.py pyflinkstate/runtime/operators/windows/*.py)
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.has-%: $(TOOLS)
	@$(BIN)/python scripts/requirements.py $(subst -, ,$*) | \
		DIST_EXTRA_CONFIG="$(CURDIR)/scripts/stored_wheels.cfg" $(PIP) -r /dev/stdin
	@touch $@

demo: $(SETUP)
	@$(BIN)/python examples/demo.py $(filter --page,$(MAKECMDGOALS))

# "make demo -- --page" names it as a target.
--page:
	@:

# Tests wait for processes and for Spark, so all parts go on at once; they share no file. The type checker goes
# first: it is soon done, and a test of users' programs finds what it has noted of the package. What takes longest
# follows.
test:
	@$(MAKE) --no-print-directory -j4 --output-sync=target typecheck lint quick quick-on-spark quick-jobs \
		quick-waiting

test-full: $(SETUP) $(VENV)/.has-full$(BROWSER)
	@$(MAKE) --no-print-directory -j2 --output-sync=target full-on-spark full full-on-disk full-interpreted

lint: $(REQUIRED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(REQUIRED)
	$(BIN)/mypy

quick: $(SETUP)
	$(BIN)/python -m pytest -m "$(QUICK)" $(addprefix --ignore ,$(JOBS) $(WAITING) $(ON_SPARK) $(CONNECTED))

quick-jobs: $(SETUP)
	$(BIN)/python -m pytest -m "$(QUICK)" $(JOBS)

quick-waiting: $(SETUP)
	$(BIN)/python -m pytest -m "$(QUICK)" $(WAITING)

quick-on-spark: $(SETUP)
	$(BIN)/python -m pytest -m "$(QUICK)" $(ON_SPARK) $(CONNECTED)

full: $(SETUP)
	$(BIN)/python -m pytest -m "not spark and $(FULL)"

full-on-spark: $(SETUP)
	$(BIN)/python -m pytest -m "spark and $(FULL)" $(ON_SPARK)

# The contracts of states, snapshots and restores, with a backend that keeps next to nothing in memory. Two tests
# are left out that look at the very objects in state: on disk they are others.
BY_IDENTITY := $(addprefix --deselect tests/snapshots/test_snapshot_restore.py::,\
	test_a_synchronous_part_that_fails_half_way_leaves_nothing_frozen \
	test_a_stream_that_fails_is_aborted_and_all_is_released)

# And those of the sections of a file that has all entries.
BY_SECTIONS := $(addprefix --deselect tests/snapshots/test_snapshot_restore.py::TestDamage::,\
	test_any_altered_section_is_found test_damage_in_key_groups_of_other_subtasks_is_not_looked_at)

full-on-disk: $(SETUP)
	PYFLINKSTATE_TEST_BACKEND=rocksdb $(BIN)/python -m pytest tests/heap/test_contract_*.py \
		tests/heap/test_state_machines.py tests/heap/test_increments.py tests/snapshots $(BY_IDENTITY)
	PYFLINKSTATE_TEST_BACKEND=native $(BIN)/python -m pytest tests/heap/test_contract_snapshots.py \
		tests/snapshots/test_snapshot_restore.py tests/snapshots/test_changed_types.py $(BY_IDENTITY) \
		$(BY_SECTIONS)

full-interpreted: $(SETUP)
	@rm -rf $(PURE) && mkdir -p $(PURE) && cp -R pyflinkstate $(PURE)/
	@find $(PURE) -name '*.so' -delete
	PYFLINKSTATE_PURE=1 PYTHONPATH=$(PURE) $(BIN)/pytest -m "not slow" $(PURE_TESTS)

soak: $(SETUP) $(VENV)/.has-full
	$(BIN)/python -m pytest -m slow
	$(BIN)/python tests/soak/soak_state_map.py
	$(BIN)/python tests/soak/soak_simulation.py
	$(BIN)/python tests/soak/soak_simulation.py --engine PIPELINED
	$(BIN)/python tests/soak/soak_mutations.py
	$(BIN)/python tests/soak/soak_mutations.py --engine PIPELINED
	$(BIN)/python tests/soak/soak_code_mutations.py
	$(BIN)/python tests/soak/soak_epochs.py
	$(BIN)/python tests/soak/soak_week.py
	$(BIN)/python tests/soak/soak_pipelined_hour.py
	$(BIN)/python tests/soak/soak_kills.py
	$(BIN)/python tests/soak/soak_kills.py --engine PIPELINED
	$(BIN)/python tests/soak/soak_kills.py --rounds 100 --target sql
	$(BIN)/python tests/soak/soak_kills.py --rounds 100 --target postgresql
	$(BIN)/python tests/soak/soak_kills.py --rounds 100 --target delta
	$(BIN)/python tests/soak/soak_kills.py --rounds 100 --target iceberg
	$(BIN)/python tests/soak/soak_kills.py --rounds 100 --target kafka
	$(BIN)/python tests/soak/soak_kills.py --rounds 100 --target parquet
	$(BIN)/python tests/soak/soak_kills.py --rounds 100 --target joined
	$(BIN)/python tests/soak/soak_two_hosts.py
	$(BIN)/python tests/soak/soak_two_hosts.py --engine PIPELINED
	$(BIN)/python tests/soak/soak_submit.py
	$(BIN)/python tests/soak/soak_users.py

$(FLINK)/clock.so: tests/interop/make_environment.sh $(wildcard tests/interop/flink/*)
	@sh tests/interop/make_environment.sh $(FLINK) $(PYTHON)

interop: $(SETUP) $(FLINK)/clock.so
	FLINK_ENVIRONMENT=$(CURDIR)/$(FLINK) $(BIN)/python -m pytest --timeout 3600 tests/interop

bench: $(SETUP)
	$(BIN)/python benchmarks/state_map.py
	$(BIN)/python benchmarks/snapshot.py
	$(BIN)/python benchmarks/keyed_count.py
	$(BIN)/python benchmarks/epoch_cost.py
	$(BIN)/python benchmarks/page_cost.py
	$(BIN)/python benchmarks/recovery.py
	$(BIN)/python benchmarks/state_access.py
	$(BIN)/python benchmarks/live_state.py

record: $(SETUP)
	$(BIN)/python benchmarks/record.py

docs: $(SETUP) $(VENV)/.has-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: $(SETUP)
	$(BIN)/python scripts/make_dist.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache build dist *.egg-info *__mypyc*.so $(shell find pyflinkstate -name "*.so")
