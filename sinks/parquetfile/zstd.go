package parquetfile

import (
	"fmt"
	"io"
	"sync"

	"github.com/DataDog/zstd"
	"github.com/apache/arrow-go/v18/parquet/compress"
)

// defaultZstdLevel is that of Java's writer and of libzstd itself.
const defaultZstdLevel = 3

var registerZstd sync.Once

// UseLibzstd makes libzstd the codec of arrow-go's Parquet reader and writer, for
// the whole process: it takes a quarter less time than the Go implementation. The
// registry of the library has no lock, so this must happen before any file is read
// or written.
func UseLibzstd() {
	registerZstd.Do(func() {
		codec := &zstdCodec{}
		codec.contexts.New = func() any { return zstd.NewCtx() }
		compress.RegisterCodec(compress.Codecs.Zstd, codec)
	})
}

// zstdCodec implements compress.StreamingCodec and compress.ErrorCodec. It keeps
// contexts, which are expensive to make and serve one call at a time.
type zstdCodec struct{ contexts sync.Pool }

func (c *zstdCodec) Encode(dst, src []byte) []byte {
	return c.EncodeLevel(dst, src, defaultZstdLevel)
}

// EncodeLevel panics when libzstd fails, which it does only when memory is used
// up: the interface has no error.
func (c *zstdCodec) EncodeLevel(dst, src []byte, level int) []byte {
	if level == compress.DefaultCompressionLevel {
		level = defaultZstdLevel
	}
	ctx := c.contexts.Get().(zstd.Ctx)
	defer c.contexts.Put(ctx)
	out, err := ctx.CompressLevel(dst[:0], src, level)
	if err != nil {
		panic(fmt.Errorf("zstd: %w", err))
	}
	return out
}

func (c *zstdCodec) CompressBound(n int64) int64 { return int64(zstd.CompressBound(int(n))) }

func (c *zstdCodec) Decode(dst, src []byte) []byte {
	out, err := c.DecodeWithError(dst, src)
	if err != nil {
		panic(err)
	}
	return out
}

func (c *zstdCodec) DecodeWithError(dst, src []byte) ([]byte, error) {
	if len(src) == 0 {
		return dst[:0], nil
	}
	ctx := c.contexts.Get().(zstd.Ctx)
	defer c.contexts.Put(ctx)
	if len(dst) > 0 {
		// A Parquet reader knows the length of a page.
		n, err := ctx.DecompressInto(dst, src)
		return dst[:max(0, n)], err
	}
	return ctx.Decompress(nil, src)
}

func (c *zstdCodec) NewReader(r io.Reader) io.ReadCloser  { return zstd.NewReader(r) }
func (c *zstdCodec) NewWriter(w io.Writer) io.WriteCloser { return zstd.NewWriter(w) }

func (c *zstdCodec) NewWriterLevel(w io.Writer, level int) (io.WriteCloser, error) {
	return zstd.NewWriterLevel(w, level), nil
}
