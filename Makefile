# Each target alone does all it needs: it makes .venv, installs, and does its job. Needs Python 3.11 or newer, nothing else.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && command -v $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One thread for each process: workers are what runs side by side.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint bench venv clean

demo: $(STAMP)
	$(BIN)/python -m tabgrpc demo

test: lint
	$(BIN)/python -m pytest -m "not slow"

lint: $(STAMP)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -m tools.generate_protos --check

bench: $(STAMP)
	$(BIN)/python -m benchmarks

venv: $(STAMP)

# PIP_ARGS: for an index of your own, such as the CPU build of torch:
#   make demo PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "tabgrpc needs Python 3.11 or newer; name it with make PYTHON=/path/to/python" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[test]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
