//go:build integration

package openwrite_test

// rounds is how often races are run.
const rounds = 200
