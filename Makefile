# Two commands matter: `make demo` and `make test`. Both make the environment they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := app.py preflight_app.py audit pipeline_profiler tests benchmarks sample_data docs

.PHONY: demo app test quick lint format bench docs clean

# The core alone, enough for the demo.
$(VENV)/core: pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	touch $@

# Everything, enough for every test. A torch that is already installed stays.
$(VENV)/all: pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	if $(BIN)/python -c "import torch" 2>/dev/null; \
	then $(BIN)/python -m pip install -q -e '.[all]'; \
	else $(BIN)/python -m pip install -q -c constraints.txt -e '.[all]'; fi
	touch $(VENV)/core $@

# A Chromium for the browser tests: the one there is, the distribution's, or Playwright's own.
$(VENV)/browser: $(VENV)/all
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	|| command -v google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	     && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
	|| $(BIN)/python -m playwright install --with-deps chromium \
	|| echo "No Chromium could be installed: the browser tests will be skipped."
	touch $@

demo: $(VENV)/core
	$(BIN)/audit scan sample_data --out runs/sample_data --fail-on never
	$(BIN)/audit report runs/sample_data -o runs/sample_data/report.html
	$(BIN)/pipeline-profiler run sample_data/loader.py:make_loader --quick --emulate-step-ms 4 \
		-o runs/sample_data/profile.json
	$(BIN)/pipeline-profiler report runs/sample_data/profile.json -o runs/sample_data/profile.html
	@echo
	@echo "Open runs/sample_data/report.html and runs/sample_data/profile.html, or look at all of it in the app:"
	@echo "  $(BIN)/python -m pip install -c constraints.txt -e '.[app]' && $(BIN)/audit app runs/sample_data"

app: $(VENV)/all
	$(BIN)/audit app runs/sample_data sample_data/sessions/*.json*

test: $(VENV)/all $(VENV)/browser
	$(BIN)/python -m pytest -n 2 --dist loadfile

# What a change should not wait for is marked `slow`: other processes, browsers, whole datasets.
quick: $(VENV)/all
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

lint: $(VENV)/all
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

format: $(VENV)/all
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

docs: $(VENV)/core
	$(BIN)/audit checks --write-docs
	$(BIN)/python docs/make_commands.py

bench: $(VENV)/all
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/scan.py $(DATA)

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache
