// Package servers starts servers that nobody here wrote, for tests: MinIO,
// SeaweedFS with its Iceberg REST catalog, PostgreSQL, and the Iceberg project's
// own REST catalog on a JVM.
//
//	m := servers.StartMinIO(t)
//	m.MakeBucket(t, "lake")
//	store := objstore.New(m.Config())    // or m.Storage() for a catalog's settings
//
//	w := servers.StartSeaweedFS(t)       // w.S3, w.Catalog, OAuth with its keys
//	db := servers.StartPostgreSQL(t).MakeDatabase(t, "firn")
//	c := servers.StartRESTCatalog(t, servers.RESTCatalog{Warehouse: "s3://lake/w", Store: m})
//
// Each listens on 127.0.0.1 only, on free ports, keeps its data in a temporary
// directory, and ends with its test, or with the test's process. The log of a
// server is shown when its test has failed.
//
// integration/scripts/servers.sh installs them once, into $FIRN_SERVERS or the
// user's cache directory; `make integration` runs it. A server that isn't there
// fails the test, unless integration/not-had.txt says why it can't be had.
package servers
