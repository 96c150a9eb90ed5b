#!/usr/bin/env bash
# Generates Go from the protobuf files with the pinned plugins of tools/go.mod.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -modfile=tools/go.mod -o "$bin/" google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc mvdan.cc/gofumpt
cd internal/wire/firnpb
PATH=$bin:$PATH protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative firn.proto
"$bin/gofumpt" -w firn.pb.go firn_grpc.pb.go
