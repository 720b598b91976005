# up · test · check · bench · down: five words, each one command. The rest is for who works on it.

PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	"$$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& command -v "$$name" && break; done || true)
BOOTSTRAP = PYTHONPATH=platform "$(or $(PYTHON),python3)" -m local_stack.bootstrap
PY = .venv/bin/python
STACK = PYTHONPATH=.:platform $(PY) -m local_stack

.PHONY: up test test-all test-dear test-clock check bench bench-adapters bench-front bench-gateway bench-keys bench-usage bench-refusals bench-pages bench-month-end bench-fsck bench-fairness bench-live-fairness bench-live-pages bench-idle-pool bench-dispatch bench-scale bench-cells bench-credit bench-extremes prove-adapters prove-gpu chaos errands security audit fuzz-api screenshots planted-bugs down status shell lock demo-traffic demo-model demo-adapters environments newest-engine
.DEFAULT_GOAL := up

# The engine's packages are still being installed while the rest starts.
up:
	@$(BOOTSTRAP) --up

# All but what guards rare things. What fails gets a second look, alone: docs/testing.md.
test: environments
	@$(PY) -m tests.gate -m "not rare" $(ARGS)

# All but what is dear, with many examples of each property: planted bugs, a thousand requests at once, kills
# of the engine, long runs in any order. What CI runs.
test-all: environments newest-engine audit
	@$(PY) -m tests.gate -m "not dear" --hypothesis-profile thorough $(ARGS)

# What takes minutes each and is left out of CI: targets with a stack of their own, and the bugs that
# the state machine finds late. Before a release, and after a change of what they measure.
test-dear: environments
	@$(PY) -m tests.gate -m dear $(ARGS)

# The rooms that know dates under clocks a week on, across the ends of month and year, as a month
# begins, on a leap day and at 23:58, PostgreSQL and Redis too. ARGS="--shift week tests/tenants" runs a part.
test-clock:
	@$(BOOTSTRAP) --control-plane-only
	@$(PY) -m tests.clock $(ARGS)

check:
	@$(BOOTSTRAP) --control-plane-only
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy manage.py platform tenants inference gpu_workers tests
	PYTHONPATH=.:platform .venv/bin/lint-imports
	DJANGO_SETTINGS_MODULE=control_plane.settings_for_checks $(PY) manage.py makemigrations --check --dry-run

bench: environments
	@$(PY) -m tests.benchmarks.serving $(ARGS)

# From an upload of an adapter to its first token, and what a cold one adds; a quarter of an hour.
bench-adapters: environments
	@$(PY) -m tests.benchmarks.adapters $(ARGS)

# What a core in front of an engine carries, Penstock beside vLLM's own server; about ten minutes.
bench-front: environments
	@$(PY) -m tests.benchmarks.front $(ARGS)

# Requests, events, idle websockets and memory of one gateway process; two minutes, and with
# ARGS="--requests 200000" three more.
bench-gateway: environments
	@$(PY) -m tests.benchmarks.gateway $(ARGS)

# The key check, revocation and the operators' lists at 10,000 tenants and 50,000 keys.
bench-keys: environments
	@$(PY) -m tests.benchmarks.key_check $(ARGS)

# Ten million usage records: reports, ingestion, fsck. Twenty minutes, 12 GB of disk.
bench-usage: environments
	@$(PY) -m tests.benchmarks.usage $(ARGS)

# Ten million hourly sums of refusals: reports, the page, adding. Ten minutes, 5 GB of disk.
bench-refusals: environments
	@$(PY) -m tests.benchmarks.refusals $(ARGS)

# Lists, pages, searches, reports and dashboards at ten million usage records, and what a page
# weighs in Chromium. Twenty minutes, 12 GB of disk.
bench-pages:
	@$(BOOTSTRAP) --control-plane-only
	@$(PY) -m tests.benchmarks.pages $(ARGS)

# The end of a month: 1,000 tenants invoiced from ten million records. Twenty minutes, 10 GB of disk.
bench-month-end: environments
	@$(PY) -m tests.benchmarks.month_end $(ARGS)

# A night's fsck at ten million entries of the ledger, and the whole one. Half an hour, 15 GB of disk.
bench-fsck: environments
	@$(PY) -m tests.benchmarks.fsck $(ARGS)

# What one tenant notices of another that floods the real stack; about nine minutes.
bench-live-fairness: environments
	@$(PY) -m tests.benchmarks.live_fairness $(ARGS)

# What 64 streams notice of 20 open dashboards; writes docs/benchmarks/live-pages.md; ten minutes.
bench-live-pages: environments
	@$(PY) -m tests.benchmarks.live_pages $(ARGS)

# What reserve, dispatch and return add to the time to first token where nobody else is there.
bench-idle-pool: environments
	@$(PY) -m tests.benchmarks.idle_pool $(ARGS)

# What each call of dispatch takes of Redis at 10,000 tenants and 100,000 queued, beside a PING, in
# pools of 10 and of 1,000 workers, and where each request needs an adapter.
bench-dispatch:
	@$(BOOTSTRAP) --control-plane-only
	@$(PY) -m tests.benchmarks.dispatch $(ARGS)

# What a request and a token cost one gateway and Redis, and what Redis keeps; two minutes.
bench-scale: environments
	@$(PY) -m tests.benchmarks.scale_cost $(ARGS)

# A pool in cells, in virtual time, before it is built; writes docs/scale/; about five minutes.
bench-cells:
	@$(BOOTSTRAP) --control-plane-only
	@$(PY) -m tests.benchmarks.cells $(ARGS)

# Random extremes of what clients may ask for, and three streams that must not notice; hours.
bench-extremes: environments
	@$(PY) -m tests.benchmarks.extremes $(ARGS)

# A thousand requests at once against credit for one and for five, fifty times each; ten minutes.
CREDIT_ROUNDS ?= 50
bench-credit: environments
	@CREDIT_ROUNDS=$(CREDIT_ROUNDS) $(PY) -m pytest tests/inference/lifecycle/test_two_gateways.py -k "credit and 1000" $(ARGS)

# A thousand adapters on one worker, of vLLM and of the simulated engine: every answer its own, none
# of another's cache, memory bounded and flat; writes docs/benchmarks/many-adapters.md; half an hour.
# ARGS="--bug unmended --adapters 80 --requests 800 --loads 0" shows that it finds a bug.
prove-adapters: environments
	@PYTHONPATH=.:platform $(PY) -m tests.benchmarks.many_adapters $(ARGS)

# The engine's contract on this node's GPU, then our engine beside AsyncLLM alone; needs neither
# PostgreSQL nor Redis. On an H100 contract and figures took seven minutes.
# ARGS="--part contract" is the proof alone, ARGS="--layers 16" has figures of a model of 1 billion.
prove-gpu: environments
	@.venv-engine/bin/python -m tests.benchmarks.gpu $(ARGS)

# Bugs in the dispatch functions; the state machine must find each; three minutes.
planted-bugs:
	@$(BOOTSTRAP) --control-plane-only
	@$(PY) -m tests.support.dispatch.planted_bugs $(ARGS)

# The scheduler against five others in virtual time; writes docs/fairness/.
bench-fairness:
	@$(BOOTSTRAP) --control-plane-only
	@$(PY) -m tests.benchmarks.fairness $(ARGS)

# What breaks is broken under load: workers, gateways, Redis, clocks. About a quarter of an hour.
chaos:
	@$(BOOTSTRAP) --control-plane-only
	@$(PY) -m tests.chaos $(ARGS)

# Six errands as people do them in Chromium and a terminal, counted in clicks, fields and seconds.
errands: environments
	@PYTHONPATH=.:platform $(PY) -m tests.errands $(ARGS)

# What Penstock promises of its security, each promise with the tests that hold it, as one table:
# walls, abuse that hit its peers, websockets, SSRF, keys, a node that lies, leaks. About ten minutes.
security: environments
	@$(PY) -m tests.security $(ARGS)

# Known vulnerabilities, bill of materials and licences of all that is locked; what it writes lies in
# var/audit. A vulnerability service that cannot be reached is said, and is an error with ARGS="--strict".
audit: environments
	@PYTHONPATH=.:platform $(PY) -m local_stack.audit $(ARGS)

# Whatever the API's document allows, and what it forbids, asked 20,000 times of the management API
# and 2,000 of /v1; another seed each time, which FUZZ_SEED repeats. About a quarter of an hour.
FUZZ_SEED ?= $(shell date +%s)
FUZZ_CASES ?= 20000
FUZZ_INFERENCE_CASES ?= 2000
fuzz-api: environments
	@echo "FUZZ_SEED=$(FUZZ_SEED)"
	@FUZZ_SEED=$(FUZZ_SEED) FUZZ_CASES=$(FUZZ_CASES) FUZZ_INFERENCE_CASES=$(FUZZ_INFERENCE_CASES) $(PY) -m pytest \
		tests/control_plane/management_api/test_fuzzed.py tests/inference/openai_api/test_fuzzed.py $(ARGS)

# Every page as a picture, light and dark, at three widths, in var/screenshots; on servers of its own.
# ARGS="projects" takes those whose name begins so.
screenshots:
	@$(BOOTSTRAP) --control-plane-only
	@$(PY) -m tests.screenshots $(ARGS)

down:
	@if [ -x $(PY) ]; then $(STACK) down; else echo "Penstock is not installed here; nothing runs."; fi

status:
	@$(STACK) status

# A shell whose environment is that of the running stack, for manage.py.
shell:
	@$(STACK) shell

environments:
	@$(BOOTSTRAP)

# The newest vLLM beside the pinned one, if there is a newer; the engine contract then runs on both.
newest-engine: environments
	@PYTHONPATH=.:platform $(PY) -m local_stack.newest_engine

# Resolve the dependencies of pyproject.toml again.
lock:
	@$(BOOTSTRAP) --control-plane-only
	@PYTHONPATH=.:platform $(PY) -m local_stack.locks

# An hour of varied traffic of the demo tenants on what `make up` has started: users, adapters, refusals,
# a slow worker, a flood. ARGS="--minutes 5" has all of it in five.
demo-traffic:
	@$(BOOTSTRAP) --control-plane-only
	@PYTHONPATH=.:platform $(PY) -m local_stack.demo_traffic $(ARGS)

# Train the demo model again from its generator and seed, then hold it to its bar.
demo-model: environments
	@# Threads that wait for each other must not spin where others need the cores.
	OMP_WAIT_POLICY=PASSIVE .venv-engine/bin/python -m gpu_workers.demo_model.train
	.venv-engine/bin/python -m gpu_workers.demo_model.evaluate

# Train the demo tenants' adapters again, both at once on a core each, then hold them to their bars.
demo-adapters: environments
	.venv-engine/bin/python -m gpu_workers.demo_model.voices.corpus --folder var/demo_adapters
	@trained=; for name in acme-support globex-support; do \
		.venv-engine/bin/python -m gpu_workers.train_adapter --threads 1 \
			--data "var/demo_adapters/$$name.jsonl" \
			--out "gpu_workers/demo_model/adapters/$$name" & trained="$$trained $$!"; \
	done; for each in $$trained; do wait "$$each" || exit 1; done
	.venv-engine/bin/python -m gpu_workers.demo_model.voices.evaluate
