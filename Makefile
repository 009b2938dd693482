# Everything a newcomer needs. `make help` lists the targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3.11)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
KRB5   := $(VENV)/.kerberos
SERDES := $(VENV)/.serializers
OPENL  := $(VENV)/.openlineage

# A name on PATH that pyenv knows and does not run does not count; what pyenv has installed does.
that_runs = $(shell for p in $$(command -v $(1)) $$(ls -d "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/*/bin/$(1) 2>/dev/null | sort -rV); do "$$p" -c pass >/dev/null 2>&1 && echo "$$p" && break; done)

# Who names a Python means it: an environment of another version is made anew. Without a name it stays what it is.
version = $(shell $(1) -c 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null)
ifneq ($(origin PYTHON),file)
  override PYTHON := $(or $(call that_runs,$(PYTHON)),$(PYTHON))
  WANTED := $(call version,$(PYTHON))
  ifneq ($(WANTED),$(call version,$(BIN)/python))
    .PHONY: $(STAMP)
    OTHER := $(and $(WANTED),$(wildcard $(BIN)/python))
  endif
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo bench bench-ledger soak soak-disk soak-replication explore test test-all test-kerberos newest pythons test-pythons coverage mutants dist lint types docs docs-release golden figures format clean lock

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9%-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with everything in it (fast when nothing changed)

# The constraints are the exact versions that CI proved; setup.cfg holds the ranges a user may have.
$(STAMP): setup.cfg setup.py pyproject.toml constraints.txt airflow_mirror/wire/_heart.pyx
	@command -v $(PYTHON) >/dev/null || { echo "make setup: $(PYTHON) is not on PATH; install Python 3.11 or say PYTHON=..." >&2; exit 1; }
	@$(if $(OTHER),echo "$(VENV) is of another Python than $(WANTED): made anew"; rm -rf $(VENV),:)
	@echo "installing into $(VENV) (about two minutes the first time) ..."
	@if command -v uv >/dev/null; then \
	  uv venv -q --allow-existing --python $(PYTHON) $(VENV) && uv pip install -q --python $(BIN)/python -c constraints.txt -e '.[dev]'; \
	else \
	  $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'; \
	fi
	@rm -rf *.egg-info # beside the installed one: an Airflow with the repository on its path would know our plugin twice
	@touch $@

# No wheel for Linux: it is compiled, with Debian's headers in the user's cache where the machine has none. What an
# earlier build left in pip's cache may look for its libraries elsewhere.
$(KRB5): $(STAMP) sandbox/gssapi.py sandbox/krb5.py
	@echo "building gssapi for logins by Kerberos (a minute) ..."
	@if command -v uv >/dev/null; then \
	  $(BIN)/python -m sandbox.gssapi uv pip install -q --no-cache --python $(BIN)/python -c constraints.txt -e '.[kerberos]'; \
	else \
	  $(BIN)/python -m sandbox.gssapi $(BIN)/python -m pip install -q --no-cache-dir --disable-pip-version-check -c constraints.txt -e '.[kerberos]'; \
	fi
	@rm -rf *.egg-info
	@touch $@

# They ask for a newer certifi than Airflow's constraints have, and so get an environment of their own.
$(SERDES): $(STAMP) tests/serializers.txt
	@echo "installing the serializers of confluent-kafka (half a minute) ..."
	@if command -v uv >/dev/null; then \
	  uv venv -q --allow-existing --python $(BIN)/python $(VENV)/serializers && uv pip install -q --python $(VENV)/serializers/bin/python -r tests/serializers.txt; \
	else \
	  $(BIN)/python -m venv $(VENV)/serializers && $(VENV)/serializers/bin/python -m pip install -q --disable-pip-version-check -r tests/serializers.txt; \
	fi
	@touch $@

# Where it is installed it sends something of each task. So it has a directory of its own, for the test that is about it.
$(OPENL): $(STAMP) tests/openlineage.txt
	@echo "installing OpenLineage's provider (some seconds) ..."
	@rm -rf $(VENV)/openlineage
	@if command -v uv >/dev/null; then \
	  uv pip install -q --python $(BIN)/python --no-deps --target $(VENV)/openlineage -r tests/openlineage.txt; \
	else \
	  $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --target $(VENV)/openlineage -r tests/openlineage.txt; \
	fi
	@touch $@

demo: setup ## migrate a real cluster and show that nothing was lost (UI=1 leaves Airflow up)
	$(BIN)/python -m demo $(if $(UI),--ui)

bench: setup ## compare with MirrorMaker 2 side by side, two hours (BENCH=--quick: below five minutes; --help lists options)
	$(BIN)/python -m benchmarks $(BENCH)

bench-ledger: setup ## what a ledger costs a day, and how long a year of it takes to read; ten minutes, starts a broker
	$(BIN)/python -m benchmarks.ledger $(BENCH)

soak: setup ## kill copiers a hundred times at random moments and compare, a quarter of an hour (SOAK=--help lists options)
	$(BIN)/python -m tests.soak $(SOAK)

soak-disk: setup ## does the target's disk stay level while a tail runs, an hour (SOAK=--help lists options)
	$(BIN)/python -m tests.soak.level_disk $(SOAK)

soak-replication: setup ## kill drivers, workers, brokers and hosts of a replication and compare, an hour; needs root (SOAK=--help lists options)
	$(BIN)/python -m tests.soak.replication $(SOAK)

explore: setup ## what breaks when actors of a cutover or a copy meet in any order, without a broker (EXPLORE=--help lists options)
	$(BIN)/python -m tests.explore $(EXPLORE)

test: setup ## what CI runs: unit and provider tests, real brokers and Spark, one migration in a real Airflow
	$(BIN)/python -m tests.parts unit provider core e2e $(TESTS)

# Without gssapi the part kerberos fails, and the others run all the same; so do tests with real serializers or OpenLineage.
test-all: setup ## every test, in parts; goes on after a failure (TESTS=--resume leaves out what passed)
	@$(MAKE) --no-print-directory -k $(KRB5) $(SERDES) $(OPENL) || true
	$(BIN)/python -m tests.parts --all $(TESTS)

test-kerberos: $(KRB5) ## logins by Kerberos; builds gssapi first (see docs/sandbox.md)
	$(BIN)/python -m tests.parts kerberos $(TESTS)

test-drills: $(OPENL)
	$(BIN)/python -m tests.parts drills $(TESTS)

test-managed: $(SERDES)
	$(BIN)/python -m tests.parts managed $(TESTS)

pythons: ## list every Python from 3.11 that is found, on PATH or among pyenv's
	@$(foreach v,3.11 3.12 3.13 3.14,p="$(call that_runs,python$(v))"; if [ "$$p" ]; then echo "$(v)=$$p"; else echo "Python $(v): not found" >&2; fi;) :

# Each has an environment of its own, .venv-3.13 and so on.
test-pythons: ## the unit and provider tests on every Python from 3.11 that is found
	@failed=; for found in $$($(MAKE) --no-print-directory pythons); do \
	  v=$${found%%=*}; p=$${found#*=}; \
	  $(MAKE) --no-print-directory VENV=.venv-$$v PYTHON=$$p setup && echo "Python $$v:" \
	    && .venv-$$v/bin/python -m tests.parts unit provider $(TESTS) || failed="$$failed $$v"; \
	done; [ -z "$$failed" ] || { echo "failed on:$$failed" >&2; exit 1; }

# Prints what has tests.parts run them on the newest Python that all of this can be installed for; nothing where .venv is
# of that one. CI has no time for both (.ci/run).
newest: setup
	@for found in $$($(MAKE) --no-print-directory pythons | sort -rV); do \
	  v=$${found%%=*}; p=$${found#*=}; \
	  [ "$$v" = "$(call version,$(BIN)/python)" ] && break; \
	  $(MAKE) --no-print-directory VENV=.venv-$$v PYTHON=$$p setup >&2 && { echo "--on .venv-$$v/bin/python"; break; }; \
	  echo "Python $$v: left out, since it has not all that is needed" >&2; \
	done

test-%: setup ## one part: unit provider core e2e faults nights properties spark months versions drills newcomer tools parity kerberos managed page
	$(BIN)/python -m tests.parts $* $(TESTS)

coverage: setup ## run the unit tests and list the lines and branches that they leave out of what moves data
	$(BIN)/python -m tests.parts unit --coverage; $(BIN)/python -m tests.coverage

mutants: setup ## change the code in ways that lose data, one by one; the unit tests must notice each
	$(BIN)/python -m tests.mutants $(MUTANTS)

dist: setup ## build wheel and sdist, check them, and try the wheel in an empty environment
	$(BIN)/python -m tests.dist $(DIST)

lint: setup ## check style, types and the import boundaries
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

types: setup ## check types alone
	$(BIN)/mypy

docs: setup ## check the docs: links, commands, options, parameters, imports, tables that come from code; and build the site
	$(BIN)/python -m pytest -q tests/unit/test_docs.py tests/unit/test_commands_in_docs.py \
	  tests/provider/test_docs_of_operators.py tests/unit/copy/test_states.py tests/unit/test_benchmarks.py \
	  tests/unit/jobs/test_monitoring.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict # with --quiet no warning is counted

docs-release: setup ## keep the docs of a release on the branch gh-pages: make docs-release VERSION=0.2; pushes nothing
	@test -n "$(VERSION)" || { echo "make docs-release: say VERSION=..." >&2; exit 1; }
	PATH=$(CURDIR)/$(BIN):$$PATH NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases $(VERSION) latest

golden: setup ## write the golden files of plan and errors, Java's keys and the brokers' recorded answers anew; starts brokers, review the diff
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q tests/unit/plan/test_model.py tests/unit/test_errors.py \
	  tests/integration/test_java_files.py
	GOLDEN=write $(BIN)/python -m pytest -q tests/integration/test_conformance.py tests/integration/test_sides_conformance.py -k as_written_down

figures: setup ## print lines, goals, imports and tests of the code (FIGURES=--no-tests is quick)
	$(BIN)/python -m tests.figures $(FIGURES)

format: setup ## rewrite the code in the house style
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .

lock: ## write the versions installed in .venv to constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable --exclude airflow-mirror | grep -v '^-e\|@' > constraints.txt

clean: ## remove .venv, caches and what the demo left
	rm -rf $(VENV) .demo .airflow build dist site *.egg-info airflow_mirror/wire/*.so .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
