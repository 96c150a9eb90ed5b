// Package paging cuts lists into pages whose order doesn't change while they are
// read: a page begins after the last item of the one before, wherever that is now.
package paging
