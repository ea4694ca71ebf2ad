# Two commands: `make up` runs everything here, `make test` checks everything.
#
#   make up [SOURCE=name=path] [PORT=8765] [BROKER=host:port] [REDIS=redis://…]
#   make test [BROKER=host:port] [REDIS=redis://…]
#   make test-kafka              the tests that need servers, on Apache Kafka and redis-server (Java 17, Maven)
#   make lock                    resolve requirements.lock anew

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The user's own servers, where given, reach the commands through the environment.
ifdef BROKER
export TESSERA_BROKER := $(BROKER)
endif
ifdef REDIS
export TESSERA_REDIS := $(REDIS)
endif
export SOURCE
export PORT

.PHONY: help up test test-kafka lock clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

up: $(VENV)/embedded.stamp
	@exec $(BIN)/tessera up \
	  $${SOURCE:+--source "$$SOURCE"} $${PORT:+--port "$$PORT"}

test: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	PATH="$(CURDIR)/$(VENV)/debian/usr/bin:$$PATH" $(BIN)/python -m pytest

# What talks to servers: on those that users run.
REAL := tests/kafka tests/store tests/streams tests/real tests/generations/test_control_topic.py \
  tests/generations/test_operator_crash.py

test-kafka: $(VENV)/test.stamp $(VENV)/kafka.stamp
	TESSERA_TEST_SERVERS=real TESSERA_KAFKA_LIBS="$(CURDIR)/$(VENV)/kafka" PATH="$(CURDIR)/$(VENV)/debian/usr/bin:$$PATH" \
	  $(BIN)/python -m pytest $(REAL)

lock: $(VENV)/python.stamp
	$(PIP_INSTALL) 'pip-tools>=7.4'
	$(BIN)/pip-compile --quiet --all-extras --strip-extras --no-emit-index-url --no-emit-find-links \
	  --no-emit-trusted-host --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV)

# A stamp file stands for a finished step: a second run installs nothing.
$(VENV)/python.stamp:
	@for python in $${PYTHON:-python3} python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    "$$python" -m venv --clear $(VENV) && touch $@ && exit 0; \
	    echo "$$python -m venv failed: install the venv module (Debian: apt install python3-venv)" >&2; exit 1; \
	  fi; \
	done; \
	echo "CPython 3.11 or newer is needed: install it, or name it with PYTHON=/path/to/python3" >&2; exit 1

$(VENV)/embedded.stamp: $(VENV)/python.stamp pyproject.toml requirements.lock
	$(PIP_INSTALL) --constraint requirements.lock --editable '.[embedded]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/python.stamp pyproject.toml requirements.lock
	$(PIP_INSTALL) --constraint requirements.lock --editable '.[embedded,test]'
	$(BIN)/python tests/fetch_commonmark.py
	tests/install_debian_packages.sh $(VENV)/debian chromium prometheus
	@touch $(VENV)/embedded.stamp $@

$(VENV)/kafka.stamp: deploy/local-kafka/pom.xml tests/install_debian_packages.sh | $(VENV)/test.stamp
	tests/install_debian_packages.sh $(VENV)/debian redis java maven
	@for program in java:default-jre-headless mvn:maven; do command -v $${program%:*} > /dev/null || \
	  { echo "make test-kafka needs $${program%:*}: Debian: apt install $${program#*:}" >&2; exit 1; }; done
	mvn -q -B -f deploy/local-kafka/pom.xml dependency:copy-dependencies -DincludeScope=runtime \
	  -DoutputDirectory="$(CURDIR)/$(VENV)/kafka"
	@touch $@
