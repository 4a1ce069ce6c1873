# Two commands: `make demo` and `make test`. Each sets up .venv the first time; later calls take seconds.
PYTHON ?= python3
OUT ?= demo-out
WORKERS ?= 2
RUN = .venv/bin/python

.PHONY: demo test test-asan wheel notebooks test-lowest release-check test-slow test-crash test-cluster test-browser security docs docs-records tables bench-peers speed deploy clean

demo: .venv/.ready
	$(RUN) -m slabnet demo --out "$(OUT)"

test: .venv/.ready
	$(RUN) -m ruff check src tests benchmarks docs release
	$(RUN) -m ruff format --check src tests benchmarks docs release
	$(RUN) -m mypy
	$(RUN) -m pytest -n $(WORKERS)

# Statistics of many draws, thousands of damaged files, large data.
test-slow: .venv/.ready
	$(RUN) -m pytest -n $(WORKERS) -m slow

# Processes killed at random moments.
test-crash: .venv/.ready
	$(RUN) -m pytest -m crash tests/end_to_end/test_crash.py tests/experiments

# Fits in several processes and on a Ray cluster of two nodes, with processes killed on the way.
test-cluster: .venv/.cluster
	$(RUN) -m pytest -m cluster tests/distributed/test_group.py tests/distributed/test_workers.py tests/experiments/test_ray.py tests/end_to_end/test_examples.py

.venv/.cluster: .venv/.ready
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster]'
	touch .venv/.cluster

# Pages in a real browser: Debian's chromium, driven by playwright; axe-core looks at contrast and labels.
AXE = .venv/axe/package/axe.min.js
test-browser: .venv/.ready $(AXE)
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get install -y -qq chromium >/dev/null; } || echo "no chromium: the tests will say so"
	SLABNET_AXE="$(CURDIR)/$(AXE)" $(RUN) -m pytest -m browser -rs tests/browser

$(AXE):
	mkdir -p .venv/axe
	cd .venv/axe && npm pack --silent axe-core@4 >/dev/null && tar xzf axe-core-*.tgz || echo "no axe-core: the tests will say so"

# The site, in docs/_build/html: the pages of docs/, the interface from docstrings, the commands from their own help.
docs: .venv/.docs
	$(RUN) -m sphinx -q -E -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

.venv/.docs: .venv/.ready
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch .venv/.docs

# The counts in SECURITY.md, from a run of the tests it speaks of.
security: .venv/.ready
	SLABNET_COUNTS=benchmarks/records/security.json $(RUN) -m pytest -m 'crash or slow or not crash' tests/end_to_end/test_crash.py tests/experiments tests/hostile/test_hostile.py tests/hostile/test_hostile_tables.py
	$(RUN) -m benchmarks.security

# Measurements behind the docs pages; each writes a record and the page made from it.
docs-records: .venv/.ready
	$(RUN) -m benchmarks.exactness
	$(RUN) -m benchmarks.gradients
	$(RUN) -m benchmarks.choosing
	$(RUN) -m benchmarks.baselines
	$(RUN) -m benchmarks.readme

.venv/.ready: pyproject.toml constraints.txt setup.py $(wildcard src/slabnet/kernels/c/*.c src/slabnet/kernels/c/*.h)
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "slabnet needs Python 3.11 or newer, got " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch .venv/.ready

# Other libraries to measure against, without the torch they would bring.
bench-peers: .venv/.ready
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps bayesian-torch blitz-bayesian-pytorch

# Everything behind docs/uci.md, raisin.md and selection.md; SLABNET_DATA must hold uci and raisin. Each goes on where it stopped.
tables: .venv/.ready
	$(RUN) -m benchmarks.uci
	$(RUN) -m benchmarks.raisin
	$(RUN) -m benchmarks.selection

# Everything behind docs/speed.md; the MNIST files must be under SLABNET_DATA. An hour; cutting goes on where it stopped.
speed: bench-peers
	$(RUN) -m benchmarks.step_time --record
	$(RUN) -m benchmarks.step_time --averaging --record
	$(RUN) -m benchmarks.scaling --record
	$(RUN) -m benchmarks.time_to_accuracy --record
	$(RUN) -m benchmarks.step_time --training --record
	$(RUN) -m benchmarks.cutting
	$(RUN) -m benchmarks.contention
	$(RUN) -m benchmarks.speed

# Everything behind docs/deploy.md; fits MNIST first (the files must be under SLABNET_DATA), and goes on where it stopped.
deploy: .venv/.ready
	$(RUN) -m benchmarks.compact --rule
	$(RUN) -m benchmarks.compact

clean:
	rm -rf .venv .venv-lowest demo-out build dist docs/_build

# The sparse and compact passes on a build that checks every position, under AddressSanitizer, with 2 000 changed files.
MUTATIONS ?= 2000
CHECKED = src/slabnet/kernels/kernels.checked.so
ASAN = $(shell $(CC) -print-file-name=libasan.so) $(shell $(CC) -print-file-name=libstdc++.so)
test-asan: .venv/.ready
	$(CC) -O1 -g -fPIC -shared -fsanitize=address -fno-omit-frame-pointer -DSLABNET_CHECKED -DSLABNET_SOURCES=$$($(RUN) src/slabnet/kernels/sources.py) -o $(CHECKED) src/slabnet/kernels/c/kernels.c -lm
	LD_PRELOAD="$(ASAN)" ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 SLABNET_KERNELS=checked SLABNET_MUTATIONS=$(MUTATIONS) \
	  $(RUN) -m pytest -q -s -p no:cacheprovider tests/hostile/test_hostile_mutated.py tests/hostile/test_hostile_compact.py tests/compact/test_compact.py; \
	  code=$$?; rm -f $(CHECKED); exit $$code

# The sdist and the wheels in dist/: built, then checked for what is in them, glibc symbols and metadata.
wheel: .venv/.release
	$(RUN) release/wheels.py build dist
	$(RUN) release/wheels.py check dist

.venv/.release: .venv/.ready
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools -e '.[release]'
	touch .venv/.release

# The tests with the lowest versions that the metadata allow; torch stays at the constrained one.
LOWEST = .venv-lowest/bin/python
test-lowest: .venv-lowest/.ready
	$(LOWEST) -m pytest -n $(WORKERS)

.venv-lowest/.ready: pyproject.toml release/lowest.py
	$(PYTHON) -m venv --clear .venv-lowest
	$(LOWEST) release/lowest.py > .venv-lowest/lowest.txt
	$(LOWEST) -m pip install --quiet --disable-pip-version-check -r .venv-lowest/lowest.txt
	$(LOWEST) -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch .venv-lowest/.ready

# The journeys of examples/*.ipynb, from a clean start, with the outputs that are stored in them.
notebooks: .venv/.ready
	$(RUN) -m pytest -m 'slow or not slow' tests/end_to_end/test_notebooks.py

# What a release needs besides `.ci/run`: wheels installed where there is no compiler, the sdist's own tests, the lowest
# versions, notebooks, and the passes under AddressSanitizer.
release-check: wheel
	$(RUN) release/wheels.py install dist
	$(RUN) release/wheels.py sdist dist
	$(MAKE) notebooks
	$(MAKE) test-lowest
	$(MAKE) test-asan
