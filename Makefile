# One name for each thing one does here. The work is done by cargo and the scripts named below.
# On a fresh Debian machine with Rust and make, `make demo` and `make test` are all it takes: as root they call
# `make deps`. Nothing else installs anything. What measures prints, and writes into a page with WRITE=1 only.

SHELL := /bin/sh
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/winddown
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Built from source and kept outside git. The version is fixed so that a new lint cannot break an
# old commit.
CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(CACHE)/tools/bin/cargo-deny
CARGO_SEMVER_VERSION := 0.51.0
CARGO_SEMVER := $(CACHE)/tools/bin/cargo-semver-checks
CARGO_MUTANTS_VERSION := 27.1.0
CARGO_MUTANTS := $(CACHE)/tools/bin/cargo-mutants
# By what it is built of: the files of a fresh clone, and of .ci/run, are newer than any program.
GRAMMAR := $(CACHE)/tools/grammar/$(shell cat tests/xtask/grammar/Cargo.lock tests/xtask/grammar/src/main.rs | \
	sha256sum | cut -c 1-12)/winddown-grammar
# What people read. tests/bench/ is a notebook, docs/pod-fields.md and tests/conformance/ are made by programs.
PAGES = $(shell git ls-files '*.md' ':!tests/bench' ':!tests/corpus' ':!docs/pod-fields.md' ':!tests/conformance')
# The pure planners. FILES=… takes others, or some of them.
FILES := preemption/src/**/*.rs \
	$(addprefix eviction/src/,choose.rs decide.rs rank.rs pending_reclaim.rs usage.rs threshold.rs threshold/*.rs) \
	$(addprefix shutdown/src/,plan.rs plan/*.rs role.rs budget.rs policy.rs)

# Those that other agents are built from, each before those that need it.
CRATES := $(addprefix --package winddown-,quantities shared runtime-conformance host notices systemd preemption eviction shutdown)

# How programs are built that ship. `PROFILE=release` makes larger ones in a third of the time.
PROFILE := dist

# The commit that is measured. The pages into which the tables go do not count as changed.
COMMIT = $(shell git rev-parse --short=8 HEAD 2>/dev/null || echo unknown)$(shell \
	git status --porcelain --untracked-files=no -- :/ ':(top,exclude)*.md' 2>/dev/null | grep -q . && echo -dirty)
BENCH = $(or $(CARGO_TARGET_DIR),target)/dist/winddown-bench

# What a machine lacks is named. Where root can install it, `demo` and `test` do; elsewhere they go on without.
DEPS := if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then $(MAKE) --no-print-directory deps; \
	else echo "Going on without: what needs it is skipped."; fi

.DEFAULT_GOAL := help
.PHONY: msrv semver help deps build programs manual demo demo-node test test-all lint lint-code lint-texts crates packages pages chaos restarts upgrade soak pressure conformance beside-kubelet rolling beside-crio bench fuzz mutants published node-base arm64

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## Install the Debian packages that the targets below need (root)
	@tests/node/packages.sh install

build: ## Build the programs: target/release/{winddown,winddownd,winddown-shim}
	@tests/node/packages.sh build
	$(CARGO) build --release --locked --package winddown

# The debug programs, and the agent of node/README.md. With an example, cargo chooses features as for the tests, and
# compiles nothing twice. Of our crates those are the features that ship: see `xtask trees`.
programs:
	@$(CARGO) build $(QUIET) --workspace --bin winddown --bin winddownd --bin winddown-shim --example agent

manual: ## Write man pages, completions and JSON schemas into target/{man,completions,schemas}
	@tests/node/packages.sh build
	@$(MAKE) --no-print-directory programs QUIET=--quiet
	@rm -rf target/man target/completions target/schemas
	@$(TARGET)/debug/winddown man --dir target/man
	@mkdir -p target/completions target/schemas
	@$(TARGET)/debug/winddown completions bash > target/completions/winddown.bash
	@$(TARGET)/debug/winddown completions zsh > target/completions/_winddown
	@$(TARGET)/debug/winddown completions fish > target/completions/winddown.fish
	@for name in $$($(TARGET)/debug/winddown schema --list); do \
		$(TARGET)/debug/winddown schema $$name > target/schemas/$$name.json; done

demo: ## Rehearse a shutdown on this machine: real agent, real pods, stand-in for logind
	@tests/node/packages.sh build || $(DEPS)
	@$(MAKE) --no-print-directory programs QUIET=--quiet
	@# 5: a pod needed SIGKILL. One of the examples ignores SIGTERM on purpose.
	@$(TARGET)/debug/winddown drill docs/examples/node --config docs/examples/node-config.yaml || [ $$? = 5 ]

demo-node: ## The same in a disposable systemd node: real logind, real power-off (needs root)
	@tests/node/packages.sh test
	@$(CARGO) run --quiet --package winddown-node-tests --bin demo-node

test: ## Run every test but the longest; the last line counts passed, failed and skipped
	@tests/node/packages.sh test || $(DEPS)
	@tests/node/took.sh say test
	@tests/node/suite.sh
	@tests/node/took.sh keep test

test-all: ## The same with packages and new random seeds, then chaos, restarts, reboots, soak, calm and fuzzing (over an hour)
	@tests/node/packages.sh test packages fuzz
	@tests/node/took.sh say test-all
	@programs/packaging/tools.sh cargo-generate-rpm >/dev/null
	@CARGO="$(CARGO)" MAKE="$(MAKE)" tests/node/stages.sh

semver: $(CARGO_SEMVER) ## Compare the API of the libraries with SINCE: the newest tag or, before the first, origin/main
	@tests/node/packages.sh build
	@# The version is that of the last release until the next one is made, so each breaking change is named.
	K8S_OPENAPI_ENABLED_VERSION=1.37 $(CARGO_SEMVER) semver-checks --release-type patch \
		--baseline-rev $(or $(SINCE),$(shell git describe --tags --abbrev=0 2>/dev/null || echo origin/main)) $(CRATES)

msrv: ## Check each library with the oldest Rust that it names (rustup toolchain install 1.88 1.89)
	@tests/node/packages.sh build
	@$(CARGO) build --quiet --package xtask
	@$(TARGET)/debug/xtask msrv

published: # Prints how cargo names them
	@echo $(CRATES)

lint: $(CARGO_DENY) $(GRAMMAR) ## Formatting, spelling, grammar, clippy, documentation, licences, bans, layering
	@tests/node/packages.sh lint
	@# Not by `cargo run`: a build script asks for what that sets, and crates would be compiled anew.
	$(CARGO) build --quiet --package xtask
	@# What reads the files takes one processor, and what compiles them waits for one crate after the other.
	@said=$$(mktemp); $(MAKE) --no-print-directory lint-texts >"$$said" 2>&1 & texts=$$!; \
	$(MAKE) --no-print-directory lint-code; code=$$?; \
	wait $$texts || code=$$?; cat "$$said"; rm "$$said"; exit $$code

lint-code:
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --workspace --no-deps
	@# Programs that the tests compile have features of the tests in crates of others. What ships compiles without those.
	$(CARGO) check --quiet --package winddown
	$(TARGET)/debug/xtask plugins

lint-texts:
	@# tests/words/codespell has the words that are right; tests/words/banned those that pages of ours do not use.
	@if command -v codespell >/dev/null; then \
		git ls-files -z | xargs -0 codespell --config tests/words/codespell && \
		git ls-files -z '*.md' | xargs -0 codespell --config tests/words/codespell --dictionary - --dictionary tests/words/banned; \
	else \
		echo "codespell is not here: spelling is NOT checked"; [ -z "$(WINDDOWN_NO_SKIP)" ]; \
	fi
	$(GRAMMAR) tests/words/grammar $(PAGES)
	$(CARGO) fmt --all --check
	$(TARGET)/debug/xtask rooms
	$(TARGET)/debug/xtask names
	$(TARGET)/debug/xtask growth
	$(TARGET)/debug/xtask trees
	$(TARGET)/debug/xtask limits
	$(TARGET)/debug/xtask ways
	$(TARGET)/debug/xtask phrases
	@# The texts of the program keep the words of the pages.
	@if command -v codespell >/dev/null; then \
		$(TARGET)/debug/xtask texts | codespell --config tests/words/codespell --dictionary - --dictionary tests/words/banned -; \
	fi
	@# Nothing is built here; that is for 'make crates'.
	$(CARGO) package --quiet --offline --locked --allow-dirty --no-verify $(CRATES)
	@echo "cargo-deny: bans (layering too), licences, sources. Advisories are NOT checked here:"
	@echo "their database is a download; where it can be had, run 'cargo deny check advisories'."
	$(CARGO_DENY) check --allow unused-wrapper bans licenses sources

crates: ## Pack the libraries as a registry takes them, and build each from its package
	@tests/node/packages.sh build
	@# Cargo takes a package whose version is the same for the same: what it made of those of the last time goes.
	@mkdir -p $(TARGET)/package $(TARGET)/debug/.fingerprint
	@[ ! -e $(TARGET)/package/begun ] || find $(TARGET)/debug/.fingerprint -mindepth 1 -maxdepth 1 -name 'winddown*' \
		-newer $(TARGET)/package/begun -exec rm -rf {} +
	@rm -rf $${CARGO_HOME:-$$HOME/.cargo}/registry/src/-*/winddown-*
	@touch $(TARGET)/package/begun
	@# Where it is not told one folder for all, cargo compiles what they depend on once for each.
	CARGO_TARGET_DIR=$(TARGET) $(CARGO) package --quiet --locked --allow-dirty $(CRATES)

# Packages name who answers for them, and where: WINDDOWN_MAINTAINER='Name <address> https://repository'. TRIAL=1 makes
# some that say they are for trying. MACHINE=aarch64 makes them for such machines.
packages: ## Build target/packages: .deb, .rpm, a static tarball and an OCI image (two builds, optimised most; or TRIAL=1)
ifeq ($(MACHINE),)
	@programs/packaging/build.sh $(if $(TRIAL),--fast) --check deb rpm
	@tests/node/packages.sh packages
	$(CARGO) build --profile $(PROFILE) --locked --package winddown
	@programs/packaging/build.sh $(if $(TRIAL),--fast) --programs $(TARGET)/$(PROFILE) deb rpm
	@programs/packaging/static.sh --profile $(PROFILE)
else
	@programs/packaging/build.sh $(if $(TRIAL),--fast) --check deb rpm
	@tests/node/packages.sh cross
	rustup target add $(addprefix $(MACHINE)-unknown-linux-,gnu musl)
	$(CARGO) build --profile $(PROFILE) --locked --package winddown
	$(CARGO) build --profile $(PROFILE) --locked --package winddown --target $(MACHINE)-unknown-linux-gnu \
		--config 'target.$(MACHINE)-unknown-linux-gnu.linker="$(MACHINE)-linux-gnu-gcc"'
	@programs/packaging/build.sh $(if $(TRIAL),--fast) --machine $(MACHINE) --own $(TARGET)/$(PROFILE) \
		--programs $(TARGET)/$(MACHINE)-unknown-linux-gnu/$(PROFILE) deb rpm
	@programs/packaging/static.sh --machine $(MACHINE) --own $(TARGET)/$(PROFILE) --profile $(PROFILE)
endif

pages: ## Write the tables that programs make into the pages; PICTURES=1 also draws docs/img, of runs (root)
	@$(CARGO) run --quiet --package winddown-node-tests --bin platforms -- --into docs/reference/support.md
	@WINDDOWN_WRITE_PAGES=1 $(CARGO) test --quiet --package winddown-runtimes-tests --test pod_fields the_page
	@WINDDOWN_WRITE_PAGES=1 $(CARGO) test --quiet --package winddown --test all the_page_on
	@WINDDOWN_WRITE_PAGES=1 $(CARGO) test --quiet --package winddown --test docs the_page_on_reliability
ifneq ($(PICTURES),)
	@tests/node/packages.sh test
	@$(MAKE) --no-print-directory programs QUIET=--quiet
	@# 5: one of the examples ignores SIGTERM on purpose. The first line is script's own.
	@script --quiet --return --log-out $(TARGET)/demo.sent --log-timing programs/tests/live/demo.timing \
		--command "stty cols 110 rows 34; TERM=xterm-256color LC_ALL=C.UTF-8 $(TARGET)/debug/winddown \
		drill docs/examples/node --config docs/examples/node-config.yaml" </dev/null >/dev/null || [ $$? = 5 ]
	@sed '1d' $(TARGET)/demo.sent > programs/tests/live/demo.sent
	@$(CARGO) run --quiet --package winddown-node-tests --bin pictures
	@WINDDOWN_BLESS=1 $(CARGO) test --quiet --package winddown-render --test pictures --test browser
	@WINDDOWN_BLESS=1 $(CARGO) test --quiet --package winddown --test all live::the_

endif

chaos: ## Play N schedules (500) of random faults on disposable nodes; KIND=reboots reboots one N times (30)
	@tests/node/packages.sh test
	@$(CARGO) run --quiet --package winddown-node-tests --bin chaos -- \
		$(if $(filter reboots,$(KIND)),$(or $(N),30) --in-a-row,$(or $(N),500)) $(if $(SEED),--seed $(SEED)) \
		$(if $(WRITE),--into tests/bench/reliability.md)

restarts: ## Restart the agent N times (300) in the middle of all that it does to pods, with each runtime
	@tests/node/packages.sh test
	@$(CARGO) run --quiet --package winddown-node-tests --bin restarts -- $(or $(N),300) \
		$(if $(SEED),--seed $(SEED))

upgrade: ## Upgrade busy nodes of each runtime from the package of the commit SINCE to the present one, and back (root)
	@tests/node/packages.sh test packages
	@WINDDOWN_EARLIER=$$(tests/node/earlier.sh '$(SINCE)') && WINDDOWN_PROGRAMS=$$(tests/node/programs.sh $(PROFILE)) && \
		export WINDDOWN_EARLIER WINDDOWN_PROGRAMS && WINDDOWN_LONG=1 $(CARGO) test --quiet \
		--package winddown-node-tests --test all -- --nocapture --test-threads=1 an_upgrade_under_load

soak: ## Use a node of each runtime for HOURS (2): pods come and go, and the agent may take no more than before
	@tests/node/packages.sh test
	@$(CARGO) run --quiet --package winddown-node-tests --bin soak -- $(or $(HOURS),2) $(if $(SEED),--seed $(SEED))

pressure: pressure-$(or $(KIND),hog) ## A memory hog N times (10); KIND=calm: ten minutes without one; KIND=oom-killers: beside others (root)

pressure-hog:
	@tests/node/packages.sh test
	@$(CARGO) build --quiet --profile dist --locked --package winddown
	@WINDDOWN_PRESSURE_RUNS=$(or $(N),10) WINDDOWN_PRESSURE_MS=250 \
		WINDDOWN_PROGRAMS=$(abspath $(TARGET))/dist \
		$(CARGO) test --quiet --package winddown-node-tests --test pressure a_memory_hog -- --nocapture

pressure-calm:
	@tests/node/packages.sh test
	@$(CARGO) build --quiet --profile $(PROFILE) --locked --package winddown
	@WINDDOWN_CALM_SECONDS=600 WINDDOWN_PROGRAMS=$(abspath $(TARGET))/$(PROFILE) \
		$(CARGO) test --quiet --package winddown-node-tests --test pressure on_a_calm_node -- --nocapture

pressure-oom-killers:
	@tests/node/packages.sh test
	@WINDDOWN_LONG=1 $(CARGO) run --quiet --package winddown-node-tests --bin beside-oom-killers -- \
		$(if $(WRITE),--into docs/explanation/comparison.md)

conformance: ## Kubernetes' own suite on a node of ours (root; RUNS=1, ADD=1, FOCUS=…, WINDDOWN_E2E_TEST=…, …); WRITE=1: tests/conformance/results.md
	@[ '$(RUNS)' = 0 ] || $(MAKE) --no-print-directory programs QUIET=--quiet
	@WRITE=$(WRITE) tests/conformance/run.sh

beside-kubelet: ## Compare winddown and the kubelet's own shutdown, for docs/companion.md (WINDDOWN_KUBELET=…, …)
	@tests/node/packages.sh test
	@$(CARGO) build --quiet --release --locked --package winddown
	@WINDDOWN_LONG=1 $(if $(WRITE),WINDDOWN_WRITE_PAGES=1) WINDDOWN_PROGRAMS=$(abspath $(TARGET))/release $(CARGO) test --quiet \
		--package winddown-cluster-tests --test real_apiserver -- --nocapture every_scene

rolling: ## Reboot three nodes of a cluster in turn, ROUNDS times (1), by winddown and by the kubelet (WINDDOWN_KUBE_SCHEDULER=…, …)
	@tests/node/packages.sh test
	@$(CARGO) build --quiet --release --locked --package winddown
	@WINDDOWN_LONG=1 $(if $(WRITE),WINDDOWN_WRITE_PAGES=1) $(if $(ROUNDS),WINDDOWN_ROUNDS=$(ROUNDS)) \
		WINDDOWN_PROGRAMS=$(abspath $(TARGET))/release $(CARGO) test --quiet \
		--package winddown-cluster-tests --test real_apiserver -- --nocapture three_nodes

beside-crio: ## Power nodes off whose CRI-O works, stops, hangs or is killed, also beside a kubelet (WINDDOWN_CRIO=…, WINDDOWN_KUBELET=…, …)
	@tests/node/packages.sh test
	@$(CARGO) test --quiet --package winddown-runtimes-tests --test crio -- --nocapture real
	@WINDDOWN_LONG=1 WINDDOWN_SCENES=CRI-O $(CARGO) test --quiet \
		--package winddown-cluster-tests --test real_apiserver -- --nocapture every_scene

bench: ## Measure everything that has a target (WINDDOWN_KUBELET=…, RUNS=3), or WHAT=containers; CHECK=1 fails for a miss that no floor explains
	@tests/node/packages.sh test
	@$(CARGO) build --quiet --profile dist --locked --package winddown
	@WINDDOWN_COMMIT=$(COMMIT) $(CARGO) build --quiet --profile dist --locked --package winddown-bench
	@ended=0; with='$(if $(WRITE),--into docs/performance.md --into tests/bench/notebook.md) $(if $(CHECK),--check)'; \
	runs='--runs $(or $(RUNS),3)'; kubelet=$${WINDDOWN_KUBELET:-}; \
	for what in $(or $(WHAT),all planners kills scaling processes fleet); do case $$what in \
		all) $(BENCH) all $$runs --kubelet "$$kubelet" --choices "$${WINDDOWN_KUBELET_CHOICES:-}" $$with ;; \
		containers) $(BENCH) containers $$runs --kubelet "$$kubelet" ;; \
		*) $(BENCH) $$what $$with ;; esac || ended=1; done; exit $$ended

fuzz: ## Try T seconds (600) of guided input on each reader of foreign input; table of tests/security.md
	@tests/node/packages.sh fuzz
	@nice -n 19 tests/fuzz/run.sh $(or $(T),600) $(TARGETS)

mutants: $(CARGO_MUTANTS) ## Change the planners in every small way: does a test fail? (hours; FILES="eviction/src/rank.rs")
	@tests/node/packages.sh build
	$(CARGO_MUTANTS) mutants --package winddown-preemption --package winddown-eviction \
		--package winddown-shutdown $(foreach file,$(FILES),--file '$(file)') \
		--jobs 1 --minimum-test-timeout 60 --output target

arm64: ## Run the unit tests and a node with the package on an emulated arm64 machine, with Debian's Rust (root, rustup)
	@tests/node/arm64.sh

# The Debian roots that disposable nodes are laid over: some minutes, once. The tests call it.
node-base:
	@for flavour in plain containerd $(and $(WINDDOWN_LONG),rpm); do \
		tests/node/base.sh bookworm $$flavour & done; \
	for flavour in plain tools uml $(and $(WINDDOWN_LONG),uml-containerd qemu); do \
		tests/node/base.sh trixie $$flavour & done; \
	$(if $(WINDDOWN_LONG),tests/node/base.sh sid plain &) wait

$(CARGO_DENY):
	@tests/node/packages.sh build
	@echo "Building cargo-deny $(CARGO_DENY_VERSION) into $(CACHE)/tools (a minute or two, once)"
	@$(CARGO) install --quiet --locked --root $(CACHE)/tools --debug cargo-deny@$(CARGO_DENY_VERSION)

$(GRAMMAR):
	@tests/node/packages.sh build
	@echo "Building the grammar check into $(CACHE)/tools/grammar (a minute or two, once)"
	@CARGO_TARGET_DIR=$(CACHE)/tools/grammar/target $(CARGO) install --quiet --locked --force \
		--root $(CACHE)/tools/grammar --path tests/xtask/grammar
	@install -D $(CACHE)/tools/grammar/bin/winddown-grammar $@

$(CARGO_SEMVER):
	@tests/node/packages.sh build
	@echo "Building cargo-semver-checks $(CARGO_SEMVER_VERSION) into $(CACHE)/tools (some minutes, once)"
	@$(CARGO) install --quiet --locked --root $(CACHE)/tools --debug cargo-semver-checks@$(CARGO_SEMVER_VERSION)

$(CARGO_MUTANTS):
	@tests/node/packages.sh build
	@echo "Building cargo-mutants $(CARGO_MUTANTS_VERSION) into $(CACHE)/tools (some minutes, once)"
	@$(CARGO) install --quiet --locked --root $(CACHE)/tools cargo-mutants@$(CARGO_MUTANTS_VERSION)
