# What a newcomer and a pipeline run. `make` alone lists it.
SHELL := /bin/bash
PROFILE ?= release
CARGO ?= cargo
export PROFILE CARGO YES

.DEFAULT_GOAL := help
.PHONY: help demo test sim bench build fmt clippy testbed testbed-down

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## see it work: one agent, one container, no tokens (YES=1 installs what is missing without asking)
	@scripts/demo.sh

test: ## everything: formatting, lints, all tests with a real docker daemon and the real claude
	@scripts/test.sh

sim: ## the simulated world at its largest: 10,000 seeds, 100,000 environments (SEEDS=n or m..n, SCALE=n)
	HMZ_SIM_SEEDS=$${SEEDS:-10000} HMZ_SIM_SCALE=$${SCALE:-100000} $(CARGO) test --release -p hmz-controllers --test sim -- \
	    every_seed many_environments what_is_planned --nocapture

build: ## build hmz (PROFILE=dev for a quick one, PROFILE=dist for the smallest)
	@scripts/build.sh $(PROFILE)

fmt: ## format the code
	$(CARGO) fmt --all

clippy: ## the lints, as the tests run them
	$(CARGO) clippy --workspace --all-targets -- -D warnings

testbed: ## a docker daemon with the tests' images, and the agent CLI
	@tests/testbed/up
	@tests/testbed/claude

testbed-down: ## stop what `make testbed` started
	@tests/testbed/down

bench: ## the figures, each measured beside its baseline (BENCH_ROUNDS=9; BENCH='ready command' for a part)
	@scripts/bench.sh $(BENCH)
