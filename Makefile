# Two commands do everything on a fresh machine:  make demo   and   make test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: demo test lab bench docs lint format clean chromium notebooks

demo: $(VENV)/.lab
	$(BIN)/teachdist demo

lab: $(VENV)/.lab
	$(BIN)/teachdist lab

bench: $(VENV)/.lab
	$(BIN)/teachdist bench

test: $(VENV)/.dev chromium
	@tests=0; $(BIN)/python -m pytest || tests=$$?; \
	notebooks=0; $(BIN)/python -m pytest --nbval --nbval-cell-timeout=180 notebooks || notebooks=$$?; \
	said() { [ $$2 = 0 ] && echo "$$1: passed" || echo "$$1: FAILED, see above"; }; \
	said tests $$tests; said notebooks $$notebooks; [ $$tests = 0 ] && [ $$notebooks = 0 ]

docs: $(VENV)/.dev
	$(BIN)/python docs/build.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Execute the course anew and store its outputs.
notebooks: $(VENV)/.dev
	$(BIN)/python -m teachdist.notebook.execute notebooks/*.ipynb

# What some tests need beyond Python: a browser, MPI's and SSH's launchers, network namespaces.
# Installed where apt can; otherwise those tests are skipped, and say so.
chromium:
	@missing=""; \
	for need in chromium:chromium mpiexec:openmpi-bin sshd:openssh-server ip:iproute2 npm:npm; do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v $${need%%:*} >/dev/null 2>&1 || missing="$$missing $${need##*:}"; \
	done; \
	[ -z "$$missing" ] || { command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] \
	  && apt-get -qq update \
	  && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends $$missing >/dev/null; } \
	|| echo "not installed here:$$missing; tests that need it will be skipped"

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "teachdist needs Python 3.11 or newer; name one: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# The stamp says what is installed; a stamp that is newer than pyproject.toml needs nothing.
$(VENV)/.lab: pyproject.toml | $(VENV)/bin/python
	@echo "installing torch, JupyterLab and more into $(VENV): minutes, the first time"
	$(PIP) -e '.[lab]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing what the tests need into $(VENV): minutes, the first time"
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.lab

clean:
	rm -rf $(VENV) site build dist artifacts .pytest_cache .ruff_cache .mypy_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
