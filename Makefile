# The continuous integration (.ci/run) runs test, test-without-kernels, lint, docs and hostile-short.
PYTHON ?= python
# Some targets change the folder.
COMMAND = $(firstword $(PYTHON))
ABSOLUTE := $(if $(findstring /,$(COMMAND)),$(abspath $(COMMAND)),$(COMMAND))
override PYTHON := $(strip $(ABSOLUTE) $(wordlist 2,9,$(PYTHON)))
HOSTILE = $(CURDIR)/build/hostile
PIP = $(PYTHON) -m pip
# The tests of what kernels compute where there are some, and of what an estimator learns by it;
# those marked without_kernels compute the same in `make test`.
OF_KERNELS = $(filter-out %_mixed.py, $(wildcard tests/test_losses_*.py tests/test_operators_*.py)) tests/test_projection.py
OF_KERNELS += $(addprefix tests/test_sparse_top.py::test_, samples_without_labels_teach_the_size bird_songs_are_told_apart)
# Graphs are traced in the same way with kernels and without them.
TRACED = $(addprefix --deselect tests/, test_losses_top_k.py::test_noised_loss_runs_inside_a_compiled_function)
TRACED += $(addprefix --deselect tests/test_projection.py::test_, a_traced_graph_is_whole_and_gives_the_same an_exported_graph_does_without_this_package)
SPHINX = $(PYTHON) -m sphinx -W --keep-going -E -q
export OMP_NUM_THREADS ?= 1

.PHONY: help install lint format test test-without-kernels test-slow hostile-short hostile hostile-files hostile-kernels integration browser quickstart docs benchmarks gpu gpu-dry wheels ci clean

help:  ## Show the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install:  ## Install the package to work on it, with what tests and documentation need.
	$(PIP) install -e ".[test,docs]"

lint:  ## Check style and format.
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

format:  ## Mend what can be mended automatically.
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

test:  ## Run the tests and the doctests.
	$(PYTHON) -m pytest

test-without-kernels:  ## Run the tests of losses and operators as if no compiler had been found.
	SKSETVALUED_KERNELS=0 $(PYTHON) -m pytest -n 0 $(OF_KERNELS) $(TRACED) -m 'not (slow or without_kernels)'

test-slow:  ## Run the statistical and long tests.
	$(PYTHON) -m pytest -m slow -n 0 --timeout 1800

hostile-short:  ## Try 5,000 hostile cases, and let hypothesis search for some.
	$(PYTHON) -m pytest -m hostile -n 0 tests/hostile
	cd tests && $(PYTHON) -m hostile --cases 5000 --folder $(HOSTILE)-short

hostile:  ## Try a million hostile cases, 10,000 at a time; a later call goes on.
	cd tests && $(PYTHON) -m hostile --cases 1000000 --folder $(HOSTILE)

hostile-files:  ## Try every change of the catalogue on files of save and of skops.
	$(PYTHON) -m pytest -m slow -n 0 -s tests/test_hostile_files.py

hostile-kernels:  ## Try hostile cases on kernels built with the sanitizers of the compiler.
	.ci/sanitized $(PYTHON)

integration:  ## Run the tests with libraries of others (pip install '.[integration]').
	$(PYTHON) -m pytest -m integration -n 0 --timeout 1800

browser:  ## Drive the example of a service in a headless Chromium (pip install '.[browser]').
	$(PYTHON) -m pytest -m browser -n 0 --timeout 600

quickstart:  ## Run the first example.
	$(PYTHON) examples/plot_quickstart.py

docs:  ## Build the documentation, with warnings as errors and without the network.
	$(SPHINX) -b html docs docs/_build/html

benchmarks:  ## Measure the speed of losses and of training against the alternatives.
	$(PYTHON) -m benchmarks

gpu:  ## On a GPU: run the laws, measure, write benchmarks/gpu.md (less than 8 minutes).
	$(PYTHON) benchmarks/gpu.py

gpu-dry:  ## Try that in Triton's interpreter and on the processor.
	$(PYTHON) benchmarks/gpu.py --dry

wheels:  ## Build the wheel of this platform and test it where there is no compiler.
	PYTHON=$(PYTHON) .ci/wheels

ci:  ## Run everything that the continuous integration runs.
	.ci/run

clean:  ## Remove what the builds leave.
	rm -rf build dist docs/_build docs/auto_examples docs/api/generated docs/measured
