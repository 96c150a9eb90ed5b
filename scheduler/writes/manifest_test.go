package writes

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// stream is a worker's stream of messages that are there already.
type stream struct {
	grpc.ServerStream
	ctx      context.Context
	messages []*flight.FlightData
}

func (s *stream) Context() context.Context     { return s.ctx }
func (s *stream) Send(*flight.PutResult) error { return nil }
func (s *stream) Recv() (*flight.FlightData, error) {
	if len(s.messages) == 0 {
		return nil, io.EOF
	}
	d := s.messages[0]
	s.messages = s.messages[1:]
	return d, nil
}

// sent is what a worker sends for a batch.
type sent struct{ messages []*flight.FlightData }

func (s *sent) Send(d *flight.FlightData) error {
	s.messages = append(s.messages, &flight.FlightData{DataHeader: append([]byte{}, d.GetDataHeader()...), DataBody: append([]byte{}, d.GetDataBody()...)})
	return nil
}

func messagesOf(tb testing.TB, batches ...arrow.RecordBatch) []*flight.FlightData {
	tb.Helper()
	var out sent
	w := flight.NewRecordWriter(&out, ipc.WithSchema(batches[0].Schema()))
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.messages
}

func file(path string) commit.File {
	return commit.File{Path: path, Format: "PARQUET", Attempt: "a", Rows: 1, Size: 10, Lower: map[int][]byte{1: {1}}}
}

func complete(tb testing.TB, paths ...string) arrow.RecordBatch {
	tb.Helper()
	var files []commit.File
	for _, p := range paths {
		files = append(files, file(p))
	}
	b, err := wire.EncodeManifest(files)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func onlyPaths(tb testing.TB, paths ...string) arrow.RecordBatch {
	tb.Helper()
	var rows []openwrite.PathsRow
	for _, p := range paths {
		rows = append(rows, openwrite.PathsRow{Path: p, Size: 1, Rows: -1})
	}
	b, err := openwrite.EncodePaths(rows)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func read(t *testing.T, batches ...arrow.RecordBatch) manifest {
	t.Helper()
	m, err := readManifest("w", "a", &stream{ctx: t.Context(), messages: messagesOf(t, batches...)}, 1<<20, 100)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestDigestIsOfTheContent: however a manifest was cut into batches and ordered, the
// same files have the same digest, and others another one.
func TestDigestIsOfTheContent(t *testing.T) {
	one := read(t, complete(t, "x/a-1", "x/a-2"))
	if cut := read(t, complete(t, "x/a-2"), complete(t, "x/a-1")); cut.digest != one.digest {
		t.Error("cut into two batches it is another one")
	}
	seen := map[string]string{"complete": one.digest}
	for name, m := range map[string]manifest{
		"fewer": read(t, complete(t, "x/a-1")), "none": read(t, complete(t)), "paths": read(t, onlyPaths(t, "x/a-1", "x/a-2")), "no paths": read(t, onlyPaths(t)),
	} {
		for other, d := range seen {
			if d == m.digest {
				t.Errorf("%s and %s have one digest", name, other)
			}
		}
		seen[name] = m.digest
	}
}

func TestManifestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		bytes, files int64
		want         string
	}{
		"bytes": {100, 100, "more than 100 bytes"}, "files": {1 << 20, 1, "more than 1 files"},
	} {
		for kind, batches := range map[string][]arrow.RecordBatch{"complete": {complete(t, "a"), complete(t, "b")}, "paths": {onlyPaths(t, "a"), onlyPaths(t, "b")}} {
			messages := messagesOf(t, batches...)
			_, err := readManifest("w", "a", &bounded{&stream{ctx: t.Context(), messages: messages}, c.bytes}, c.bytes, c.files)
			if commit.CodeOf(err) != commit.CodeManifestRefused || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
		}
	}
}

func TestWorkerTokens(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, verifier := wire.NewSigner(key), wire.NewVerifier(key.Public().(ed25519.PublicKey))
	now := time.Now()
	token := signToken(signer, "j-1", now.Add(time.Minute))
	if got, err := verifyToken(verifier, token, now); err != nil || got.WriteID != "j-1" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := verifyToken(verifier, token, now.Add(2*time.Minute)); err == nil {
		t.Error("it holds after its end")
	}
	if _, err := verifyToken(verifier, signer.SignText(tokenDomain, []byte(`{"w":"j-1","x":9999999999999}`)), now); err == nil {
		t.Error("without its prefix it holds")
	}
	if _, err := verifyToken(verifier, tokenPrefix+signer.SignText("another", []byte(`{"w":"j-1","x":9999999999999}`)), now); err == nil {
		t.Error("a text that was signed for another use holds")
	}
	if _, err := verifyToken(verifier, tokenPrefix+signer.SignText(tokenDomain, []byte(`{"x":9999999999999}`)), now); err == nil {
		t.Error("a token for no write holds")
	}
}

// FuzzManifest: whatever a worker sends as the messages of its stream, reading it ends
// in a manifest or in a refusal, and a manifest has a digest.
func FuzzManifest(f *testing.F) {
	pack := func(messages []*flight.FlightData) []byte {
		var out []byte
		for _, m := range messages {
			for _, part := range [][]byte{m.GetDataHeader(), m.GetDataBody()} {
				out = binary.LittleEndian.AppendUint32(out, uint32(len(part)))
				out = append(out, part...)
			}
		}
		return out
	}
	f.Add(pack(messagesOf(f, complete(f, "x/a-1"))))
	f.Add(pack(messagesOf(f, onlyPaths(f, "x/a-1"))))
	f.Add([]byte("nonsense"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var parts [][]byte
		for len(raw) >= 4 {
			n := min(int(binary.LittleEndian.Uint32(raw)), len(raw)-4)
			parts, raw = append(parts, raw[4:4+n]), raw[4+n:]
		}
		s := &stream{ctx: t.Context()}
		for i := 0; i+1 < len(parts); i += 2 {
			s.messages = append(s.messages, &flight.FlightData{DataHeader: parts[i], DataBody: parts[i+1]})
		}
		m, err := readManifest("w", "a", &bounded{s, 1 << 20}, 1<<20, 1000)
		switch {
		case err != nil && commit.CodeOf(err) != commit.CodeManifestRefused:
			t.Errorf("%v", err)
		case err == nil && len(m.digest) != 64:
			t.Errorf("a manifest without a digest: %+v", m)
		}
	})
}

// held is a stream whose worker sends nothing until the call has ended.
type held struct{ stream }

func (h *held) Recv() (*flight.FlightData, error) {
	<-h.ctx.Done()
	return nil, h.ctx.Err()
}

// openJournal has one write, which is open.
type openJournal struct{ Journal }

func (openJournal) WriteState(context.Context, string) (lifecycle.State, error) {
	return lifecycle.State{Phase: lifecycle.Open}, nil
}

// TestStalledWorkersKeepNobodyOut: a worker that holds its stream back loses its call,
// and its place when the call has ended.
func TestStalledWorkersKeepNobodyOut(t *testing.T) {
	s := &Service{
		cfg: Config{}.WithDefaults(), journal: openJournal{}, slots: make(chan struct{}, 1), handInTime: 10 * time.Millisecond,
		reading: places{most: 1, writes: map[string]*place{}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	turn, err := s.take(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.read(t.Context(), turn, Write{Plan: &plan.Commit{}}, "w", "a", &held{stream{ctx: ctx}}); commit.CodeOf(err) != commit.CodeBadRequest || !strings.Contains(err.Error(), "didn't come") {
		t.Fatal(err)
	}
	if turn.done(); len(s.slots) != 1 {
		t.Error("the place is given to another one while the stream is still read")
	}
	cancel() // as gRPC does when the call has ended
	s.slots <- struct{}{}
	leave, err := s.reading.take(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	leave()
}
