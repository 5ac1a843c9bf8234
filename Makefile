# Needs Python 3.11 or newer with pip, and make. Everything else is installed into .venv.
#
#   make demo      the first five minutes: three processes, a frozen leader, a refused late write
#   make test      the test suite
#   make verify    style, types, import directions; writes nothing
#   make fix       mends the style that can be mended by a program; makes docs/reference.md anew
#   make prove     whole clusters under faults, a thousand seeds and every planted fault; build/prove.json
#   make endure    the long tests: kills and damage with real processes and files, many seeds
#   make outbox    100,000 commands over three nodes that are killed and frozen, ten minutes; build/outbox.json
#   make soak      the same as prove with new seeds, for an hour
#   make bench     the log beside the bare disk; commands per second, beside another system
#   make coverage  the test suite with a report of what it does not reach

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
ARGS ?=
STORAGE_ARGS ?=
OUTBOX_ARGS ?=

.PHONY: demo test verify fix prove endure outbox soak bench coverage clean
.DELETE_ON_ERROR:

demo: $(VENV)/runtime.stamp
	$(VENV)/bin/fencepost demo $(ARGS)

# Three at a time: those with real processes wait more than they compute.
test: $(VENV)/dev.stamp
	$(VENV)/bin/pytest -n 3 --dist loadfile $(ARGS)

# Caches are kept out of the tree, or not made, so that verifying leaves no trace.
verify: $(VENV)/dev.stamp
	$(PY) -m ruff check --no-cache .
	$(PY) -m ruff format --no-cache --check .
	$(PY) -m mypy --cache-dir $(VENV)/mypy
	$(PY) -m mypy --cache-dir $(VENV)/mypy tests
	$(VENV)/bin/lint-imports --no-cache
	@$(PY) -B -m tests.house.signs

fix: $(VENV)/dev.stamp
	$(PY) -m ruff check --no-cache --fix .
	$(PY) -m ruff format --no-cache .
	$(PY) -m tests.house.reference

prove: $(VENV)/dev.stamp
	$(PY) -m fencepost.jepsen.proof prove --minutes 10.5 --workers 2 --out build/prove.json $(ARGS)

endure: $(VENV)/dev.stamp
	$(VENV)/bin/pytest -n 2 --dist loadfile -m endure $(ARGS)

outbox: $(VENV)/dev.stamp
	$(PY) -m fencepost.jepsen.cluster run --commands 100000 --seed 1 --out build/outbox.json $(ARGS)

soak: $(VENV)/dev.stamp
	$(PY) -m fencepost.jepsen.proof soak --minutes 60 --workers 2 --out build/soak.json $(ARGS)

bench: $(VENV)/runtime.stamp
	$(PY) -m benchmarks.storage $(STORAGE_ARGS)
	$(PY) -m benchmarks.compare $(ARGS)
	$(PY) -m benchmarks.outbox $(OUTBOX_ARGS)
	$(PY) -m benchmarks.snapshots

coverage: $(VENV)/dev.stamp
	$(PY) -m coverage run -m pytest $(ARGS)
	$(PY) -m coverage report

clean:
	rm -rf $(VENV) build dist .coverage .pytest_cache .ruff_cache .mypy_cache .import_linter_cache src/*.egg-info

# Two stamps, so that the demo does not wait for the test tools.
$(VENV)/runtime.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("fencepost needs Python 3.11 or newer; $(PYTHON) is %d.%d. Choose one: make PYTHON=python3.11 demo" % sys.version_info[:2])'
	@echo 'setting up $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/runtime.stamp
	@echo 'adding the test tools to $(VENV)'
	@$(PIP) install --editable '.[dev]'
	@touch $@
