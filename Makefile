# Everything runs in a virtual environment that the first target to need it makes and fills.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# TensorFlow Privacy needs an older numpy than the rest.
TENSORFLOW_VENV ?= .venv-tensorflow
OUTPUT ?= audit_report
FLAGS ?=
# One thread a process: the audits and tests are parallel over processes.
export OMP_NUM_THREADS ?= 1

.PHONY: audit test test-auditorium test-tensorflow lint bench clean

$(VENV)/.installed: requirements/base.txt requirements/test.txt setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -r requirements/test.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	touch $@

## audit: train DP-SGD models on real images and test their privacy claim; FLAGS= passes flags on
audit: $(VENV)/.installed
	$(BIN)/python -m dvrenyi_plugin.binaries.audit_dpsgd --output_dir=$(OUTPUT) $(FLAGS)

## test: all tests
test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

## test-auditorium: tests inside the real DP-Auditorium (docs/dp_auditorium.md); AUDITORIUM_PYTHON= names its environment's
test-auditorium: $(if $(AUDITORIUM_PYTHON),,$(VENV)/.installed)
	$(or $(AUDITORIUM_PYTHON),$(BIN)/python) -m pytest tests/auditorium -q

$(TENSORFLOW_VENV)/.installed: requirements/tensorflow.txt setup.py pyproject.toml
	$(PYTHON) -m venv $(TENSORFLOW_VENV)
	$(TENSORFLOW_VENV)/bin/pip install --quiet -r requirements/tensorflow.txt
	$(TENSORFLOW_VENV)/bin/pip install --quiet --no-deps --editable .
	touch $@

## test-tensorflow: tests with TensorFlow Privacy, in an environment of their own
test-tensorflow: $(TENSORFLOW_VENV)/.installed
	$(TENSORFLOW_VENV)/bin/python -m pytest tests/tensorflow tests/mechanisms/test_layer_checks.py \
		tests/mechanisms/test_dp_sgd_contract.py tests/mechanisms/test_contract.py

## lint: formatter, linter and types
lint: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

## bench: the measurements that the documentation quotes and that need no other framework; takes hours; QUICK=--quick: a minute
QUICK ?=
bench: $(VENV)/.installed
	$(BIN)/python benchmarks/coverage.py $(QUICK)
	$(BIN)/python benchmarks/certified_fraction.py $(QUICK)
	$(BIN)/python benchmarks/dv_estimator.py $(QUICK)
	$(BIN)/python benchmarks/dpsgd_engines.py $(QUICK)
	$(BIN)/python benchmarks/dpsgd_engines.py --audit $(QUICK)
	$(BIN)/python benchmarks/canary_separation.py $(QUICK)
	$(BIN)/python benchmarks/planned_power.py $(QUICK)
	$(BIN)/python benchmarks/shk_flows.py $(QUICK)
	$(BIN)/python benchmarks/particles.py $(QUICK)
	$(BIN)/python benchmarks/gdp_baseline_false_alarms.py $(QUICK)
	$(BIN)/python benchmarks/trade_off.py $(QUICK)
	$(BIN)/python benchmarks/sequential_auditors.py $(QUICK)
	$(BIN)/python benchmarks/privacy_assertions.py $(QUICK)
	$(BIN)/python benchmarks/recorded_scores.py $(QUICK)
	$(BIN)/python benchmarks/sequential_audit.py --csv=docs/sequential_audit.csv $(QUICK)
	$(BIN)/python benchmarks/broken_training.py --output=docs/broken_training.csv $(QUICK)

clean:
	rm -rf $(VENV) $(TENSORFLOW_VENV) $(OUTPUT) build *.egg-info
