# Two commands do everything: `make final-eval` and `make test`. Both set up .venv first if it is missing.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONUTF8 := 1
# without compiled modules, every new process would compile them again, and the tests start hundreds
unexport PYTHONDONTWRITEBYTECODE
# make final-eval TRUST_PROGRAMS=1 runs programs without a sandbox if this machine has none
export PCGEVAL_TRUST_PROGRAMS := $(TRUST_PROGRAMS)

.DEFAULT_GOAL := help
.PHONY: help setup final-eval midterm-eval report picture audit test test-fast test-soak lint docs bench environments clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv with the exact versions of constraints.txt

$(READY): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 setup" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt pip setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation --group dev --editable '.[all]'
	@git rev-parse --git-dir >/dev/null 2>&1 || $(BIN)/dvc config --local core.no_scm true
	@touch $(READY)

final-eval: $(READY)  ## evaluate the competition of params.yaml: ranking, grades, report
	@$(BIN)/pcgeval run

midterm-eval: $(READY)  ## evaluate the midterm's letters and trials in rounds/midterm
	@$(BIN)/pcgeval run --round midterm

report: $(READY)  ## make the pages in results/report
	@$(BIN)/dvc repro report

picture: report  ## make docs/report.png, the picture in README; needs Chromium
	@$(BIN)/python docs/picture.py

audit: $(READY)  ## repeat the evaluation in an empty folder and compare every file
	@$(BIN)/pcgeval audit

CORES := $(shell getconf _NPROCESSORS_ONLN)
# many tests wait for other processes, so one worker more than cores keeps the cores busy
WORKERS := $(shell expr $(CORES) + 1)

test: $(READY)  ## run all tests on all cores; PCGEVAL_SOAK=1 runs the long ones in full
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-fast: $(READY)  ## run the tests that need no other process, model or DVC, while you work
	@$(BIN)/python -m pytest -n $(CORES) --dist loadfile --no-loadscope-reorder -m "not slow and not e2e and not llm"

test-soak: $(READY)  ## run all tests, the long ones in full, as CI does
	@PCGEVAL_SOAK=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

lint: $(READY)  ## run ruff, mypy and lint-imports, and check that docs/commands.md and failures.md are up to date
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pcgeval.cli.docs --check

docs: $(READY)  ## build the documentation site; `python -m http.server -d docs/site` serves it offline, with search
	@rm -rf .cache/docs && mkdir -p .cache/docs
	@tar -cf - *.md docs/*.md docs/report.png data/classifier/README.md training/second/RULES.md environments/*/README.md | tar -xf - -C .cache/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file docs/mkdocs.yml

bench: $(READY)  ## measure the speeds and accuracies that the docs quote
	@failed=0; for script in bench/*.py; do $(BIN)/python $$script || failed=1; done; exit $$failed

ENVIRONMENTS := .venv-environments
define environment  # a venv with an extra, the pin that it cannot have, and other packages
	$(PYTHON) -m venv $(ENVIRONMENTS)/$(1)
	grep -v '^$(2)==' constraints.txt > $(ENVIRONMENTS)/$(1)/constraints.txt
	$(ENVIRONMENTS)/$(1)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(ENVIRONMENTS)/$(1)/constraints.txt pip setuptools
	$(ENVIRONMENTS)/$(1)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(ENVIRONMENTS)/$(1)/constraints.txt --no-build-isolation --editable '.[$(1)]' $(3) pytest hypothesis
endef
environments:  ## test the environments for verifiers and the task for Inspect, each in a separate venv; needs the network
	$(call environment,verifiers,openai,./environments/pcgeval_levels ./environments/pcgeval_papers)
	$(ENVIRONMENTS)/verifiers/bin/python -m pytest tests/rl tests/judge/test_integration_guide.py
	$(call environment,inspect,fsspec)
	$(ENVIRONMENTS)/inspect/bin/python -m pytest tests/rl/test_inspect_task.py

clean:  ## remove outputs, rounds, rehearsals and caches; inputs, results in git, paid replies and replaced submissions stay
	@rm -rf data/raw data/trials data/intermediate data/levels data/images data/stability data/replays data/similarity data/diversity data/evidence data/judgements results/report rounds rehearsals .cache
	@[ ! -d .pcgeval ] || find .pcgeval -mindepth 1 -maxdepth 1 ! -name calls ! -name replaced -exec rm -rf {} +
