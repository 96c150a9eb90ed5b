package delta

import "github.com/firn-project/firn/format/delta"

// The leaves of each action in a checkpoint. One that the file doesn't have is
// nil and gives no value.

type vectorLeaves struct{ storageType, path, offset, size, cardinality *leaf }

type addLeaves struct {
	path, size, modificationTime, dataChange, stats, baseRowID, rowVersion, clustering *leaf
	values, tags                                                                       pair
	vector                                                                             vectorLeaves
}

type removeLeaves struct {
	path, deleted, dataChange, extended, size, baseRowID, rowVersion *leaf
	values, tags                                                     pair
	vector                                                           vectorLeaves
}

type protocolLeaves struct{ reader, writer, readerFeatures, writerFeatures *leaf }

type metadataLeaves struct {
	id, name, description, provider, schemaString, partitionColumns, created *leaf
	options, configuration                                                   pair
}

type txnLeaves struct{ appID, version, lastUpdated *leaf }

type domainLeaves struct{ domain, configuration, removed *leaf }

type sidecarLeaves struct{ path, size, modified *leaf }

func (r *actionRows) bind() {
	at := func(path string) *leaf { return r.byPath[path] }
	list := func(path string) *leaf { return r.pairs[path].keys }
	vector := func(action string) vectorLeaves {
		p := action + ".deletionVector."
		return vectorLeaves{at(p + "storageType"), at(p + "pathOrInlineDv"), at(p + "offset"), at(p + "sizeInBytes"), at(p + "cardinality")}
	}
	r.add = addLeaves{
		path: at("add.path"), size: at("add.size"), modificationTime: at("add.modificationTime"), dataChange: at("add.dataChange"),
		stats: at("add.stats"), baseRowID: at("add.baseRowId"), rowVersion: at("add.defaultRowCommitVersion"), clustering: at("add.clusteringProvider"),
		values: r.pairs["add.partitionValues"], tags: r.pairs["add.tags"], vector: vector("add"),
	}
	r.remove = removeLeaves{
		path: at("remove.path"), deleted: at("remove.deletionTimestamp"), dataChange: at("remove.dataChange"), extended: at("remove.extendedFileMetadata"),
		size: at("remove.size"), baseRowID: at("remove.baseRowId"), rowVersion: at("remove.defaultRowCommitVersion"),
		values: r.pairs["remove.partitionValues"], tags: r.pairs["remove.tags"], vector: vector("remove"),
	}
	r.protocol = protocolLeaves{
		at("protocol.minReaderVersion"), at("protocol.minWriterVersion"), list("protocol.readerFeatures"), list("protocol.writerFeatures"),
	}
	r.metaData = metadataLeaves{
		id: at("metaData.id"), name: at("metaData.name"), description: at("metaData.description"), provider: at("metaData.format.provider"),
		schemaString: at("metaData.schemaString"), partitionColumns: list("metaData.partitionColumns"), created: at("metaData.createdTime"),
		options: r.pairs["metaData.format.options"], configuration: r.pairs["metaData.configuration"],
	}
	r.txn = txnLeaves{at("txn.appId"), at("txn.version"), at("txn.lastUpdated")}
	r.domain = domainLeaves{at("domainMetadata.domain"), at("domainMetadata.configuration"), at("domainMetadata.removed")}
	r.sidecar = sidecarLeaves{at("sidecar.path"), at("sidecar.sizeInBytes"), at("sidecar.modificationTime")}
	for _, m := range []*leaf{
		r.add.path, r.remove.path, r.protocol.reader, r.metaData.id, r.metaData.schemaString, r.txn.appID, r.domain.domain, r.sidecar.path,
	} {
		if m != nil {
			r.marks = append(r.marks, m)
		}
	}
}

func (v vectorLeaves) read() *delta.DeletionVector {
	if !present(v.storageType) {
		return nil
	}
	size, _ := v.size.number()
	cardinality, _ := v.cardinality.number()
	d := &delta.DeletionVector{StorageType: v.storageType.text(), PathOrInlineDV: v.path.text(), SizeInBytes: int32(size), Cardinality: cardinality}
	if n, ok := v.offset.number(); ok {
		offset := int32(n)
		d.Offset = &offset
	}
	return d
}

func (r *actionRows) addAction() *Add {
	c := &r.add
	a := &Add{
		Path: c.path.text(), PartitionValues: c.values.refs(), DataChange: c.dataChange.flag(), Stats: c.stats.text(), Tags: c.tags.refs(),
		DeletionVector: c.vector.read(), BaseRowID: c.baseRowID.numberRef(), DefaultRowCommitVersion: c.rowVersion.numberRef(),
		ClusteringProvider: c.clustering.textRef(),
	}
	a.Size, _ = c.size.number()
	a.ModificationTime, _ = c.modificationTime.number()
	if a.Stats == "" && r.useParsed {
		a.Stats = statsObject{r.parsed}.json()
	}
	return a
}

func (r *actionRows) removeAction() *Remove {
	c := &r.remove
	a := &Remove{
		Path: c.path.text(), DeletionTimestamp: c.deleted.numberRef(), DataChange: c.dataChange.flag(), PartitionValues: c.values.refs(),
		Size: c.size.numberRef(), Tags: c.tags.refs(), DeletionVector: c.vector.read(), BaseRowID: c.baseRowID.numberRef(),
		DefaultRowCommitVersion: c.rowVersion.numberRef(),
	}
	if present(c.extended) {
		extended := c.extended.flag()
		a.ExtendedFileMetadata = &extended
	}
	return a
}

func (r *actionRows) protocolAction() *delta.Protocol {
	c := &r.protocol
	reader, _ := c.reader.number()
	writer, _ := c.writer.number()
	p := &delta.Protocol{MinReaderVersion: int(reader), MinWriterVersion: int(writer)}
	// Some writers put empty lists into old protocols.
	if f := c.readerFeatures.list(); f != nil && (len(f) > 0 || reader >= 3) {
		p.ReaderFeatures = f
	}
	if f := c.writerFeatures.list(); f != nil && (len(f) > 0 || writer >= 7) {
		p.WriterFeatures = f
	}
	return p
}

func (r *actionRows) metadataAction() *Metadata {
	c := &r.metaData
	m := &Metadata{
		ID: c.id.text(), Name: c.name.textRef(), Description: c.description.textRef(),
		Format:       Format{Provider: c.provider.text(), Options: c.options.texts()},
		SchemaString: c.schemaString.text(), PartitionColumns: c.partitionColumns.list(), CreatedTime: c.created.numberRef(),
		Configuration: c.configuration.texts(),
	}
	return m
}

func (r *actionRows) txnAction() *Txn {
	v, _ := r.txn.version.number()
	return &Txn{AppID: r.txn.appID.text(), Version: v, LastUpdated: r.txn.lastUpdated.numberRef()}
}

func (r *actionRows) domainAction() *DomainMetadata {
	return &DomainMetadata{Domain: r.domain.domain.text(), Configuration: r.domain.configuration.text(), Removed: r.domain.removed.flag()}
}

func (r *actionRows) sidecarAction() *Sidecar {
	s := &Sidecar{Path: r.sidecar.path.text()}
	s.SizeInBytes, _ = r.sidecar.size.number()
	s.ModificationTime, _ = r.sidecar.modified.number()
	return s
}
