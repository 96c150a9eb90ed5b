package rest

import "net/http"

// Handler is all of the interface, without a listener.
func Handler(c Config) http.Handler { return newServer(c).handler() }
