# Firn. `make help` lists the targets. A fresh machine needs Go, make and a C++
# compiler; make integration, make interop and make interop-engines say what else they use.

ifeq (,$(findstring duckdb_arrow,$(GOFLAGS)))
export GOFLAGS := $(strip $(GOFLAGS) -tags=duckdb_arrow)
endif

TOOLS := -modfile=tools/go.mod
# The pure packages: small enough to run under the race detector on every push.
PURE := ./commit/... ./plan/... ./format/... ./scheduler/graph/... ./scheduler/planner/... ./sql/...
# Input of `make demo`: a Parquet file with the columns of examples/flights.
DEMO_INPUT ?= examples/flights/flights-sample.parquet

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/firn
	go build -o bin/firn ./cmd/firn

.PHONY: demo
demo: build ## run the main job on a real sample in a fresh directory, into an Iceberg and a Delta table (DEMO_INPUT=file.parquet for another)
	examples/flights/demo.sh bin/firn $(DEMO_INPUT)

.PHONY: test
test: ## run the tests; needs nothing but Go, make and a C++ compiler
	go vet ./...
	go test ./...

.PHONY: race
race: ## run all tests under the race detector
	go test -race ./...

.PHONY: race-pure
race-pure: ## run the tests of the pure packages under the race detector
	go test -race $(PURE)

.PHONY: explore
explore: ## explore the commit protocol's step functions exhaustively (minutes; prints bounds and states)
	FIRN_EXPLORE=full go test ./commit/committest -run '^TestExplore$$' -count=1 -timeout 30m -v

.PHONY: fuzz-smoke
fuzz-smoke: ## run every fuzz target for FUZZTIME (5s) after its seeds; a target that fails leaves its input in testdata/fuzz
	@git grep -oE '^func Fuzz[A-Za-z0-9]+' -- '*_test.go' | sed 's/:func / /' | while read -r file target; do \
		echo "== $$target"; go test "./$$(dirname "$$file")" -run '^$$' -fuzz "^$$target\$$" -fuzztime $${FUZZTIME:-5s} -fuzzminimizetime 10x || exit 1; \
	done

.PHONY: lint
lint: ## check style, import rules and that generated files are current
	go tool $(TOOLS) golangci-lint run ./...
	go run ./internal/errorgen -check
	go run ./internal/noticegen -check

.PHONY: fmt
fmt: ## format the code
	go tool $(TOOLS) gofumpt -w $$(git ls-files '*.go' | grep -v '\.pb\.go$$')

.PHONY: generate
generate: ## write generated code and reference pages again (needs protoc)
	go run ./internal/errorgen
	go run ./internal/noticegen
	go test ./format/iceberg -run TestTypesPage -update
	go test ./cmd/firn -run TestReferencePage -update
	go test ./scheduler/rest -run TestDocument -update
	integration/scripts/protoc.sh

.PHONY: integration
integration: build ## run whole clusters of processes, with MinIO, SeaweedFS, PostgreSQL, REST catalogs and other readers
	integration/scripts/integration.sh

.PHONY: chaos
chaos: ## break clusters on purpose and judge their tables (RUNS=200 for the seeds 0 to 199, RUN=7 for one)
	integration/scripts/chaos.sh "$(RUNS)" "$(RUN)"

.PHONY: chaos-smoke
chaos-smoke: ## as chaos, with each fault and each fail point once
	integration/scripts/chaos.sh

.PHONY: soak
soak: build ## run mixed statements with constant faults; what the processes hold stays flat (MINUTES=10)
	FIRN_BIN=$(CURDIR)/bin/firn FIRN_SOAK_MINUTES=$${MINUTES:-10} go test -tags duckdb_arrow,chaos,soak ./integration/chaos -run '^TestSoak$$' -count=1 -timeout 24h -v

.PHONY: interop
interop: build ## read every table of the suite with PyIceberg, delta-rs and DuckDB, and write by the open write protocol (in a virtual environment)
	integration/scripts/interop.sh

.PHONY: interop-engines
interop-engines: build ## have Spark and Ray write tables by the open write protocol (in another virtual environment; with a JRE): the 3,000,000 flights of FIRN_TESTDATA, else the sample sixty times
	integration/scripts/engines.sh

.PHONY: bench-smoke
bench-smoke: ## print rows/s of the INSERT beside DuckDB's COPY and iceberg-go's Append, of shuffle reads beside a bare DoGet, what cached frames save, when rows of a pipelined SELECT come, and the scheduler's tasks/s and memory
	go test ./integration/bench -run '^$$' -bench Smoke -benchtime 1x -timeout 20m
	go test ./scheduler -run '^$$' -bench Smoke -benchtime 1x -timeout 20m

.PHONY: bench-commit
bench-commit: ## print commits/s and waits beside the library's, with fsyncs per commit (FIRN_BENCH_SECONDS=30 for each side, 5 by default)
	go test ./integration/bench -run '^$$' -bench Commit -benchtime 1x -timeout 60m -v

.PHONY: bench-delta
bench-delta: ## print hand-ins/s beside writers that put Delta versions themselves, and what opening a log of 1,000,000 files takes
	go test ./integration/bench -run '^$$' -bench Delta -benchtime 1x -timeout 60m -v
	go test ./catalog/delta -run '^$$' -bench Open -benchtime 5x -timeout 60m
