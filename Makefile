# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Verbs only; the work is in tools/, lab/, images/ and files/spank/. `make` alone says what there is.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# Nodes of the lab's Kubernetes.
LAB_NODES ?= 2
export LAB_NODES
# Files of the lab's tests that run at once: they mostly wait for Kubernetes and Slurm.
LAB_TESTS ?= 3
# Where the C code is built: outside its own folder.
SPANK := $(MAKE) -C files/spank BUILD=../../build/spank
# How `make demo` makes its cluster: push (a playbook, once) or operator (kubectl apply, and it stays so).
MODE ?= push
export MODE
# What `make images` builds and `make lab-load` loads; the demonstration needs the operator's in its own mode only.
IMAGES ?= slurm jail mariadb operator
# Set by tools/test, which makes each target once and in order, so that none makes what it stands on again.
LAB_READY ?=
# Set by test-long: what is exhaustive, too. Such tests have the mark `long`.
LONG ?=
export LONG
# More words for pytest: make unit ARGS='-k hostlist'
ARGS ?=

help: ## say what there is
	@awk -F':.*## ' '/^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

##@ Trying

ifdef KUBECONFIG
demo: ## a Slurm cluster and a job in it; in the lab, or in the cluster of KUBECONFIG (then with DEMO_DOCUMENT=my.yml); MODE=operator: by the operator
	@KUBECTL="$${KUBECTL:-kubectl}" tools/run tools/demo
else
demo: IMAGES = slurm jail mariadb$(if $(filter operator,$(MODE)), operator)
demo: lab-load
	@tools/run --lab tools/demo
endif

lab-up: $(if $(LAB_READY),,prerequisites) ## start a real Kubernetes on this machine (LAB_NODES=2)
	@tools/run lab/lab up

lab-down: ## stop it and take it away
	@tools/run lab/lab down

lab-status: ## say how it does
	@tools/run lab/lab status

images: $(if $(LAB_READY),,prerequisites) ## build the images of Slurm, of the jail and of the operator
	@tools/run images/build $(IMAGES)

# The build prints the paths of its archives, and only these; an image that is there already is not built again.
lab-load: $(if $(LAB_READY),,images lab-up) ## load the images into the lab
	@tools/run images/build $(IMAGES) | tools/run xargs -d '\n' lab/lab load

##@ Checking

test: ## quick checks, then the lab's tests; a summary at the end
	@tools/test

test-long: ## the same and what is exhaustive: every fault point and distribution, the newest Slurm, fifty clusters; run before a release
	@LONG=1 tools/test

lint: ## ruff, imports, shellcheck, yamllint, ansible-lint, changelog, documentation, C warnings
	@tools/lint

types: ## mypy --strict
	@tools/types

unit: ## unit tests
	@tools/run python -m pytest -n auto tests/unit $(ARGS)

spank: ## tests of the C code
	@$(SPANK) test

sanity: ## ansible-test sanity, without containers; LONG=1: on every Python
	@tools/sanity

# 5: none of the tests that ARGS chooses is among these.
# With words of one's own perhaps only one of the two has tests, which pytest ends with status 5; without any, none is a fault.
NONE_CHOSEN = $(if $(ARGS),[ $$? = 5 ],false)
integration: $(if $(LAB_READY),,lab-load) ## tests against the lab's Kubernetes with real Slurm
	@tools/run --lab python -m pytest -n $(LAB_TESTS) --no-loadscope-reorder -m 'not alone$(if $(LONG),, and not long)' tests/integration $(ARGS) || $(NONE_CHOSEN)
	@tools/run --lab python -m pytest -m 'alone$(if $(LONG),, and not long)' tests/integration $(ARGS) || $(NONE_CHOSEN)

# The files that are about Slurm itself: the jail, with Kubernetes and without, its modules, accounting, authentication, the REST API, node lines, roll-outs, HA, the upgrade, the metrics. What is only Kubernetes' does not change with it.
NEWEST := $(addprefix tests/integration/,jail bare $(addprefix test_,$(addsuffix .py,accounting auth rest slurm_modules scale hardware node_sets rollout ha upgrade monitoring)))
newest: $(if $(LAB_READY),,lab-load) ## of these, what is about Slurm itself, with the newest Slurm that Debian has (26.05)
	@tools/run images/build slurm:26.05 | tools/run xargs -d '\n' lab/lab load
	@CORRAL_SLURM_IMAGE=localhost/corral/slurm:26.05 tools/run --lab python -m pytest -n $(LAB_TESTS) --no-loadscope-reorder $(NEWEST) $(ARGS)

bare: $(if $(LAB_READY),,images) ## of these, the tests of the jail on a Slurm without Kubernetes; needs no lab
	@tools/run python -m pytest tests/integration/bare $(ARGS)

emulated: ## the jail under AppArmor and cgroup v2, in an emulated machine (qemu); needs no lab
	@tools/prerequisites emulated
	@tools/run python -m pytest tests/emulated $(ARGS)

crowd: $(if $(LAB_READY),,lab-load) ## fifty clusters at once under one operator; 40 GB of disk, half an hour
	@CORRAL_CROWD=$${CORRAL_CROWD:-50} tools/run --lab python -m pytest -s tests/integration/operator/test_crowd.py $(ARGS)

molecule: $(if $(LAB_READY),,lab-load) ## the molecule scenario against the lab
	@tools/run --lab tools/molecule

bench: ## measure against the goals, in the lab; writes build/bench/results.json and docs/benchmarks.md
	@$(MAKE) demo KUBECONFIG=
	@tools/run --lab python tests/bench/bench.py build/demo/cluster.yml $(ARGS)

##@ Making

prerequisites: ## install the programs that all of this needs (Debian, root)
	@tools/prerequisites

format: ## have ruff put Python into shape
	@tools/run ruff check --quiet --fix . ; tools/run ruff format .

crd: ## write the CustomResourceDefinitions from the schema
	@tools/run python tools/crd.py

profiles: ## write the seccomp profiles from their list of system calls
	@tools/run python tools/seccomp.py

collection: ## build the collection's archive into build/ and try it
	@tools/collection

clean: ## remove build/ and what Python left; the lab and the cache stay
	@rm -rf build .ansible .pytest_cache .mypy_cache .ruff_cache .hypothesis tests/output
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

.PHONY: help demo lab-up lab-down lab-status images lab-load test test-long lint types unit spank sanity integration newest bare emulated crowd molecule bench prerequisites format crd profiles collection clean
