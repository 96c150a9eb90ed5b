// Package restcatalog is an Iceberg REST catalog for tests, and a proxy that
// puts faults between it and its clients.
//
// The Server keeps its tables in iceberg-go's SQL catalog, so nothing of Firn
// judges requirements, applies updates or writes metadata files there: what the
// tables say in the end is another implementation's word. It isn't authenticated
// and listens on 127.0.0.1.
//
// The Proxy forwards every request and, where its Schedule says so, lets one go
// wrong in a way that networks and servers do: lost before or after it took
// effect, answered falsely, arriving late or twice, answered from the past. It
// counts requests and the faults that really happened.
package restcatalog
