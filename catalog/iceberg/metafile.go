package iceberg

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/firn-project/firn/internal/objstore"
)

// maxMetadataSize bounds what is read of a metadata file, so that a wrong
// pointer can't fill the scheduler's memory.
const maxMetadataSize = 1 << 30

// ReadMetadata reads and parses a metadata file, compressed or not.
func ReadMetadata(ctx context.Context, store objstore.Store, location string) (table.Metadata, error) {
	raw, err := readAll(ctx, store, location)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, fmt.Errorf("metadata file %s: %w", location, err)
		}
		if raw, err = io.ReadAll(io.LimitReader(z, maxMetadataSize+1)); err != nil {
			return nil, fmt.Errorf("metadata file %s: %w", location, err)
		}
		if len(raw) > maxMetadataSize {
			return nil, fmt.Errorf("metadata file %s: larger than %d bytes", location, maxMetadataSize)
		}
	}
	m, err := table.ParseMetadataBytes(raw)
	if err != nil {
		return nil, fmt.Errorf("metadata file %s: %w", location, err)
	}
	if m.CurrentSchema() == nil {
		return nil, fmt.Errorf("metadata file %s: it has no current schema", location)
	}
	return m, nil
}

func readAll(ctx context.Context, store objstore.Store, location string) ([]byte, error) {
	o, err := store.Open(ctx, location)
	if err != nil {
		return nil, err
	}
	defer func() { _ = o.Close() }()
	if o.Size() > maxMetadataSize {
		return nil, fmt.Errorf("%s: %d bytes are too many for a metadata file", location, o.Size())
	}
	b := make([]byte, o.Size())
	if n, err := o.ReadAt(b, 0); err != nil && (n < len(b) || !errors.Is(err, io.EOF)) {
		return nil, fmt.Errorf("read %s: %w", location, err)
	}
	return b, nil
}

// WriteMetadata writes a metadata file under a name that isn't taken.
func WriteMetadata(ctx context.Context, store objstore.Store, location string, m table.Metadata) error {
	raw, err := json.Marshal(m)
	if err == nil {
		raw, err = compressed(location, raw)
	}
	if err != nil {
		return fmt.Errorf("metadata file %s: %w", location, err)
	}
	return objstore.WriteFile(ctx, store, location, raw)
}

// compressed compresses a metadata file if its name says that it is.
func compressed(location string, raw []byte) ([]byte, error) {
	if !strings.HasSuffix(location, ".gz.metadata.json") {
		return raw, nil
	}
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := z.Write(raw); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// FirstMetadataPath is where the first metadata file of a table goes.
func FirstMetadataPath(m table.Metadata) string {
	return metadataPath(m, 0, uuid.NewString())
}

func metadataPath(m table.Metadata, version int, id string) string {
	ext := ".metadata.json"
	if strings.EqualFold(m.Properties()[table.MetadataCompressionKey], "gzip") {
		ext = ".gz" + ext
	}
	return metadataDir(m) + "/" + fmt.Sprintf("%05d-%s", version, id) + ext
}

// nextMetadataPath counts on from the number in the current file's name; a name
// without one counts as 0, as in Java.
func nextMetadataPath(m table.Metadata, current, id string) string {
	base := path.Base(current)
	digits, _, ok := strings.Cut(base, "-")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 {
		// The names of Hadoop tables: v12.metadata.json.
		digits, _, _ = strings.Cut(strings.TrimPrefix(base, "v"), ".")
		if n, err = strconv.Atoi(digits); err != nil || n < 0 {
			n = -1
		}
	}
	return metadataPath(m, n+1, id)
}

// metadataDir is where metadata files, manifests and manifest lists go.
func metadataDir(m table.Metadata) string {
	if p := m.Properties()[table.WriteMetadataPathKey]; p != "" {
		return strings.TrimRight(p, "/")
	}
	return strings.TrimRight(m.Location(), "/") + "/metadata"
}

// expiredMetadata lists the metadata files that fell out of the log, when the
// table wants them deleted.
func expiredMetadata(base, next table.Metadata) []string {
	on, err := strconv.ParseBool(next.Properties()[table.MetadataDeleteAfterCommitEnabledKey])
	if err != nil || !on {
		return nil
	}
	kept := map[string]bool{}
	for e := range next.PreviousFiles() {
		kept[e.MetadataFile] = true
	}
	var out []string
	for e := range base.PreviousFiles() {
		if !kept[e.MetadataFile] {
			out = append(out, e.MetadataFile)
		}
	}
	return out
}
