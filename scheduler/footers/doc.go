// Package footers holds data files against what their manifests say before they
// are committed. Manifests come from executors and from external writers, which may
// be broken or hostile, so the scheduler looks at the files itself: that each is
// there, has the size, is whole Parquet, and has as many rows in its footer. Where
// an external writer only says where its files are, the manifest is derived from
// their footers.
package footers
