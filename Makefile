# The targets, one line each: make

GO ?= go

# Packages whose tests start JVMs (they import internal/kafkatest) run two at a time, those that keep both cores of a small
# machine busy, or measure, one after the other. They are not cached (-count=1): go test doesn't see that a program that a test runs
# has changed. The others run side by side.
ALL_PACKAGES = $(shell $(GO) list ./...)
JVM_PACKAGES = $(shell $(GO) list -f '{{range .TestImports}}{{if eq . "streamkeeper/internal/kafkatest"}}{{$$.ImportPath}} {{end}}{{end}}{{range .XTestImports}}{{if eq . "streamkeeper/internal/kafkatest"}}{{$$.ImportPath}} {{end}}{{end}}{{if eq .ImportPath "streamkeeper/internal/kafkatest"}}{{.ImportPath}}{{end}}' ./...)
HEAVY_PACKAGES = $(addprefix streamkeeper/tests/,bench chaos e2e fence)
FAST_PACKAGES = $(filter-out $(JVM_PACKAGES),$(ALL_PACKAGES))

UNIT_TIMEOUT = 10m
JVM_TIMEOUT = 18m

FUZZ_TIME ?= 20s
SEEDS ?= 3000
CHECKS ?= 3000
RUN_ARGS ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: ## streamkeeper with an embedded log: nothing else to install (RUN_ARGS='--listen 127.0.0.1:19292')
	$(GO) run ./cmd/streamkeeper dev $(RUN_ARGS)

.PHONY: build
build: ## bin/streamkeeper
	$(GO) build -o bin/ ./cmd/streamkeeper

.PHONY: check
check: fmt vet ## format, vet, the project's own rules, unit tests: before every commit
	$(GO) test -short -timeout $(UNIT_TIMEOUT) ./...

.PHONY: test
test: fmt vet java netns fetch ## everything, with real brokers and a real Kafka Streams application
	$(GO) test -timeout $(UNIT_TIMEOUT) $(FAST_PACKAGES)
	$(GO) test -count=1 -p 2 -timeout $(JVM_TIMEOUT) $(filter-out $(HEAVY_PACKAGES),$(JVM_PACKAGES))
	$(GO) test -count=1 -p 1 -timeout $(JVM_TIMEOUT) $(HEAVY_PACKAGES)

.PHONY: e2e
e2e: java fetch ## the end-to-end tests alone, with their progress (E2E='-run TestX')
	$(GO) test -count=1 -v -timeout $(JVM_TIMEOUT) ./tests/e2e/... $(E2E)

.PHONY: long
long: java fetch ## the stories of real applications at full length: 100 subtopologies, ten crashes, pauses of a minute, all upgrades (about 20 minutes)
	$(GO) test -count=1 -v -timeout 30m -run 'TestApps|TestRolling|TestMixed|TestPaused' ./tests/e2e -args -long

.PHONY: race
race: ## all tests that need no JVM, with the race detector and the self-checks of the invariants tag
	$(GO) test -short -race -tags invariants -timeout 30m ./...

.PHONY: sim
sim: ## SEEDS new random histories of replicas, clients and faults (3000); a failing seed is shrunk and printed
	cd tests/sim && $(GO) test -count=1 -timeout 60m -run '^TestSimulation$$' -args -seeds $(SEEDS) $(SIM)

.PHONY: differential
differential: java fetch ## CHECKS random histories beside Kafka's own coordinator classes (3000); a failure is shrunk and kept for -rapid.failfile
	cd tests/differential && $(GO) test -count=1 -timeout 60m -run '^TestRandom' -args -rapid.checks $(CHECKS) -rapid.shrinktime 2m

.PHONY: fence
fence: java fetch ## the owner of a shard stopped at each step, and what clusters forget, on all versions of Kafka (about 3 minutes)
	$(GO) test -count=1 -v -timeout 30m ./tests/fence -args -full

.PHONY: chaos
chaos: java netns fetch ## an hour of failures in network namespaces (root; CHAOS='-seed 42 -for 10m')
	$(GO) test -count=1 -v -timeout 5h ./tests/chaos -args $(if $(findstring -for,$(CHAOS)),,-for 1h) $(CHAOS)

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZ_TIME (20s)
	@set -e; for pkg in $(ALL_PACKAGES); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZ_TIME) $$pkg; \
		done; \
	done

.PHONY: jaeger
jaeger: ## traces of topology descriptions in a real Jaeger, built once into .cache (minutes); prints what docs/traces.md shows
	$(GO) test -count=1 -v -timeout 90m -run '^TestTracesInJaeger$$' ./tests/traces -args -build-jaeger

.PHONY: bench
bench: java fetch ## speed and memory beside Kafka's own coordinator; writes .cache/bench.md (about 10 minutes)
	$(GO) test -count=1 -v -timeout 60m ./tests/bench -args -full $(BENCH)

.PHONY: growth
growth: java fetch ## 10,000 to 1,000,000 idle groups, beside Kafka's; writes .cache/growth.md (10 minutes where nothing else runs, 20 beside other work; 12 GiB of disk, 8 of memory)
	$(GO) test -count=1 -v -timeout 60m -run '^TestGrowth$$' ./tests/bench -args -full $(BENCH)

.PHONY: tools
tools: java fetch ## time and memory of Kafka's command line tools before 100,000 idle groups (about 3 minutes; TOOLS='-tools-groups 1000000')
	$(GO) test -count=1 -v -timeout 60m -run '^TestTools$$' ./tests/bench -args -full $(TOOLS)

.PHONY: takeover
takeover: java fetch ## takeover of shards with 10,000 and 100,000 groups beside Kafka's; writes .cache/takeover.md (about 6 minutes)
	$(GO) test -count=1 -v -timeout 30m -run '^TestTakeover$$' ./tests/bench -args -full $(TAKEOVER)

.PHONY: fmt
fmt:
	@bad=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$bad" ]; then echo "not gofmt'ed:"; echo "$$bad"; exit 1; fi

.PHONY: vet
vet:
	$(GO) vet ./...

# Java and Maven are the two things that Go can't fetch. On a CI machine they are installed if that is possible.
.PHONY: java
java:
	@if command -v java >/dev/null && command -v javac >/dev/null && command -v mvn >/dev/null; then exit 0; fi; \
	if [ -n "$$CI" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends openjdk-17-jdk-headless maven; \
	elif [ -n "$$CI" ]; then \
		echo "The tests need Java 17 (java, javac) and Maven (mvn), and they can't be installed here (no root, or no apt-get)." >&2; exit 1; \
	else \
		echo "Java 17 or Maven is missing: tests with a real Kafka will be skipped. On Debian: apt-get install openjdk-17-jdk-headless maven" >&2; \
	fi

# Namespaces need root, ip and iptables. Where they can't be had the tests in tests/chaos run without cuts, and say so.
.PHONY: netns
netns:
	@if [ "$$(id -u)" = 0 ] && [ -n "$$CI" ] && command -v apt-get >/dev/null && ! { command -v ip && command -v iptables; } >/dev/null; then \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends iproute2 iptables || true; \
	fi

# The jars come before the tests, so that a slow download is not taken for a slow test.
.PHONY: fetch
fetch:
	@$(GO) test -count=1 -timeout 30m -run '^TestFetch$$' ./internal/kafkatest >/dev/null || \
		$(GO) test -count=1 -timeout 30m -v -run '^TestFetch$$' ./internal/kafkatest
