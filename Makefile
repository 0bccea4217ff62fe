# Everything one can do here. `make help` prints the list.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

export UV_PYTHON_DOWNLOADS := never
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/disaggpair
PYTHON ?= python3
UV_VERSION := 0.13.9
ENGINE ?= cpu
RUN := .run

# A uv of the user's is taken when there is one; else one is put into the cache.
UV := $(shell command -v uv 2>/dev/null || echo $(CACHE)/uv-$(UV_VERSION)/bin/uv)
export PATH := $(dir $(UV)):$(PATH)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*?## ' $(MAKEFILE_LIST) | awk -F ':.*?## ' '{printf "  %-16s %s\n", $$1, $$2}'

$(CACHE)/uv-$(UV_VERSION)/bin/uv:
	@command -v $(PYTHON) >/dev/null || { echo "make: python3 (3.11 or later) is missing"; exit 1; }
	$(PYTHON) -m venv $(CACHE)/uv-$(UV_VERSION)
	$(CACHE)/uv-$(UV_VERSION)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.PHONY: platform
platform:
	@test "$$(uname -s)" = Linux || { echo "make: the test bed needs Linux, this is $$(uname -s); what works without it: 'make install', then '.venv/bin/disaggpair plan', and the chart on a cluster of your own"; exit 1; }

.PHONY: install
install: .venv/installed ## the Python environment, every package as requirements.lock says

.venv/installed: requirements.lock pyproject.toml connector/pyproject.toml tests/bed/pyproject.toml | $(UV)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: Python 3.11 or later is needed, $(PYTHON) is $$($(PYTHON) --version); set PYTHON=..."; exit 1; }
	@$(UV) venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" .venv
	@$(UV) pip sync --quiet --require-hashes --python $(BIN)/python requirements.lock
	@$(UV) pip install --quiet --no-deps --python $(BIN)/python --editable . --editable connector --editable tests/bed
	@touch $@

# -- use ---------------------------------------------------------------------------------------

.PHONY: demo
demo: platform install ## a DisaggPair on this machine, five turns, a table (ENGINE=sim: simulated engines)
	@$(BIN)/disaggpair-bed demo --engine $(ENGINE)

.PHONY: cluster-up
cluster-up: platform install ## a cluster to try things on; prints the KUBECONFIG to set
	@$(BIN)/disaggpair-bed up --engine $(ENGINE)

.PHONY: cluster-down
cluster-down: ## end the cluster of cluster-up
	@$(BIN)/disaggpair-bed down

# -- check -------------------------------------------------------------------------------------

.PHONY: test
test: forget check test-fast test-clients test-cluster test-e2e coverage ## everything that can run on this machine

.PHONY: forget
forget: install
	@$(BIN)/coverage erase

.PHONY: test-fast
test-fast: install ## unit, golden, properties, contract: about a minute
	$(BIN)/coverage run -m pytest -m "not cluster and not engines and not wheels and not clients" tests

.PHONY: test-clients
test-clients: platform install ## client libraries as they are, in front of simulated engines
	$(BIN)/coverage run -m pytest -m clients tests

.PHONY: test-cluster
test-cluster: platform install ## a real control plane, process nodes, simulated engines
	$(BIN)/disaggpair-bed install controlplane
	$(BIN)/coverage run -m pytest -m "cluster and not engines" tests

.PHONY: test-e2e
test-e2e: platform install ## real engines on the CPU
	$(BIN)/disaggpair-bed install all
	$(BIN)/coverage run -m pytest -m engines tests

.PHONY: test-releases
test-releases: platform install ## the code of every vLLM release that is accepted (1 GB to download, not in `make test`)
	$(BIN)/disaggpair-bed install engines
	$(PYTEST) -m wheels tests

.PHONY: fuzz
fuzz: install ## the router's readers of streams and of requests under a fuzzer for FUZZ_S seconds each (not in `make test`)
	$(UV) venv --quiet --allow-existing --python $(BIN)/python $(RUN)/fuzz
	$(UV) pip install --quiet --python $(RUN)/fuzz/bin/python atheris==3.0.0 httptools multidict orjson
	mkdir -p $(RUN)/corpus $(RUN)/corpus-requests
	PYTHONPATH=operator:connector:tests/bed $(RUN)/fuzz/bin/python tests/fuzz/fuzz_stream.py \
		-max_total_time=$(or $(FUZZ_S),60) -max_len=4096 $(RUN)/corpus tests/fuzz/seeds
	PYTHONPATH=operator:connector:tests/bed $(RUN)/fuzz/bin/python tests/fuzz/fuzz_requests.py \
		-max_total_time=$(or $(FUZZ_S),60) -max_len=4096 $(RUN)/corpus-requests tests/fuzz/seeds-requests

.PHONY: coverage
coverage: ## floors: 90 % over all, 100 % for the pure modules
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=90
	$(BIN)/coverage report --fail-under=100 --include='$(PURE)'

PURE := operator/disaggpair_operator/plan/*,operator/disaggpair_operator/status/*,operator/disaggpair_router/session.py,operator/disaggpair_router/pick.py,operator/disaggpair_router/retries.py,operator/disaggpair_router/heldtokens.py,operator/disaggpair_router/kv.py,operator/disaggpair_router/history.py,operator/disaggpair_router/tokenhistory.py,operator/disaggpair_router/structure.py,operator/disaggpair_router/way/*,operator/disaggpair_router/gaps.py,operator/disaggpair_router/sse.py,operator/disaggpair_router/relay.py,operator/disaggpair_router/answer.py,operator/disaggpair_router/podview.py,operator/disaggpair_router/conversation.py,operator/disaggpair_router/tenants.py,operator/disaggpair_router/door.py,operator/disaggpair_router/inbound/message.py,operator/disaggpair_router/inbound/incoming.py,operator/disaggpair_router/usage.py,operator/disaggpair_router/apis/*,operator/disaggpair_router/leases/place.py,operator/disaggpair_router/leases/rows.py,operator/disaggpair_router/leases/board.py,operator/disaggpair_router/guard/compare.py,operator/disaggpair_router/guard/questions.py,connector/disaggpair_connector/contract.py,connector/disaggpair_connector/digest.py,connector/disaggpair_connector/lease.py,connector/disaggpair_connector/heap.py,connector/disaggpair_connector/events.py,connector/disaggpair_connector/counters.py,connector/disaggpair_connector/ledger.py,connector/disaggpair_connector/table.py,connector/disaggpair_connector/wire.py,connector/disaggpair_connector/handle.py,connector/disaggpair_connector/transfer_plan.py,connector/disaggpair_connector/tally.py,connector/disaggpair_connector/settings.py,connector/disaggpair_connector/kept.py,connector/disaggpair_connector/standstill.py,connector/disaggpair_connector/reads.py,connector/disaggpair_connector/identity.py,connector/disaggpair_connector/prompts.py,connector/disaggpair_connector/refusals.py

.PHONY: check
check: lint types imports verify ## everything a machine can say without running tests

.PHONY: lint
lint: install ## style, spelling, YAML
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/yamllint --strict .

.PHONY: types
types: install ## mypy strict
	$(BIN)/mypy

.PHONY: imports
imports: install ## who may import whom
	$(BIN)/lint-imports

# -- generate ----------------------------------------------------------------------------------

.PHONY: fmt
fmt: install ## format and sort
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format --quiet .

.PHONY: crds
crds: install ## CRD, the chart's copy, the API page
	$(BIN)/disaggpair crd --write

.PHONY: router-config
router-config: install ## the page of the router's file
	$(BIN)/python -m disaggpair_router.configpage --write

.PHONY: golden
golden: install ## golden files from the plan
	$(PYTEST) -q --refresh-golden tests/unit/control/test_plan_golden.py

# No index and no engine in the lock: its packages are named, and vLLM's bounds do not decide ours.
LOCK := $(UV) pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header \
	--no-annotate --no-emit-index-url --no-emit-package disaggpair --no-emit-package disaggpair-bed \
	--no-emit-package disaggpair-connector --group pyproject.toml:dev

.PHONY: lock
lock: | $(UV) ## requirements.lock from the pyproject files, keeping what still fits
	$(LOCK) --output-file requirements.lock

.PHONY: verify
verify: install ## regenerate what is generated and fail on a difference
	@mkdir -p $(RUN) && cp requirements.lock $(RUN)/
	$(BIN)/disaggpair crd --check
	$(BIN)/python -m disaggpair_router.configpage --check
	$(PYTEST) -q tests/unit/control/test_plan_golden.py
	$(LOCK) --output-file $(RUN)/requirements.lock
	diff requirements.lock $(RUN)/requirements.lock

.PHONY: build
build: install ## both wheels, into dist/
	$(UV) build --quiet --wheel --out-dir dist --package disaggpair
	$(UV) build --quiet --wheel --out-dir dist --package disaggpair-connector

.PHONY: clean
clean: ## end the cluster of cluster-up and remove what tests and demo left; caches outside stay
	@test ! -x $(BIN)/disaggpair-bed || $(BIN)/disaggpair-bed down
	rm -rf $(RUN) dist .coverage .coverage.*
