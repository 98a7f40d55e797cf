# The two commands: `make up` runs a three-broker cluster, `make test` runs all tests.
# Both make their own virtual environment in .venv and install what they need.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
BROKERS ?= 3
PORT ?= 9092
ARGS ?=

.PHONY: up test chaos lint bench bench-vs-kafka clean help

help:
	@echo "make up      run a cluster of $(BROKERS) brokers on port $(PORT) and up, until Ctrl-C (PORT=19092, ARGS='--control-port 8099')"
	@echo "make test    run all tests (ARGS='-k name' to choose)"
	@echo "make chaos   break a cluster 200 times and check what is left (ARGS='--seed 7 --events 80')"
	@echo "make lint    ruff and mypy"
	@echo "make bench   measure a cluster of its own; docs/benchmarks.md says how to read it"
	@echo "make bench-vs-kafka   measure Apache Kafka beside it, on a quiet machine (ARGS=--three)"
	@echo "make clean   remove .venv, caches, and .data with the cluster of make up"

$(VENV)/run: setup.cfg pyproject.toml deploy/setup
	deploy/setup venv $(VENV)
	touch $@

$(VENV)/test: $(VENV)/run
	deploy/setup test $(VENV)
	touch $@

up: $(VENV)/run
	exec $(BIN)/kafkalike up --brokers $(BROKERS) --port $(PORT) --dir .data/up $(ARGS)

test: $(VENV)/test
	deploy/setup zookeeper
	deploy/setup kcat
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONHASHSEED=0 $(BIN)/python -m pytest -rsR $(ARGS)

chaos: $(VENV)/test
	deploy/setup zookeeper
	$(BIN)/python -m tests.chaos.run $(ARGS)

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/run
	$(BIN)/kafkalike bench --self $(ARGS)

bench-vs-kafka: $(VENV)/test
	$(BIN)/python -m tests.benchmarks.vs_kafka $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .data .mypy_cache .ruff_cache
