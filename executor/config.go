package executor

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/executor/metrics"
	"github.com/firn-project/firn/sinks"
	"google.golang.org/grpc"
)

// Config says how an executor runs. Zero values have defaults where one is
// named.
type Config struct {
	// Server is the scheduler's address, host:port.
	Server string
	// Listen is the address for control and Flight; "127.0.0.1:0" when empty.
	Listen string
	// Dir holds the executor's identity, its shuffle files and its slots'
	// temporary files. No two executors share one.
	Dir string
	// Slots is how many tasks run at a time; 2 when zero.
	Slots int
	// Memory in bytes is shared by the slots in equal parts; 1 GiB for each
	// when zero.
	Memory int64
	// ObjectCache is in bytes of disk, shared by the slots in equal parts: what
	// they keep of the objects that they read, while they read them. 0 leaves it to
	// the disk.
	ObjectCache int64
	// ShuffleDisk bounds the shuffle files and uploads in Dir, in bytes; 0 leaves
	// it to the disk.
	ShuffleDisk int64
	// LocalAllow are the directories that sources may be read from; nil for
	// what the scheduler says.
	LocalAllow []string
	// ID names the executor; kept in Dir when empty.
	ID string
	// Build is the version of the program, for people.
	Build string
	// Sinks are the drivers by table format.
	Sinks map[string]sinks.Driver
	// Engines makes the query engine of a slot; DuckDB when nil.
	Engines func(EngineConfig) (Engine, error)
	// AlwaysRemote reads the executor's own shuffle output over Flight too.
	AlwaysRemote bool
	// Compress writes and sends shuffle data as lz4.
	Compress bool
	// ProbeTimeout bounds one probe; 2 minutes when zero.
	ProbeTimeout time.Duration
	// DialPeers and ServerOptions are further gRPC options for connections to
	// others and for the listener, such as TLS; DialScheduler those for the
	// scheduler alone, after DialPeers.
	DialPeers, DialScheduler []grpc.DialOption
	ServerOptions            []grpc.ServerOption
	// Metrics counts what the executor does. Nil: nobody looks.
	Metrics *metrics.Metrics
	// Logger is slog.Default when nil.
	Logger *slog.Logger
}

const (
	maxSlots      = 1024
	memoryPerSlot = 1 << 30
	minSlotMemory = 16 << 20
)

// withDefaults fills in what is left out and refuses what can't work.
func (c Config) withDefaults() (Config, error) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Slots == 0 {
		c.Slots = 2
	}
	if c.Memory == 0 {
		c.Memory = int64(c.Slots) * memoryPerSlot
	}
	if c.ProbeTimeout == 0 {
		c.ProbeTimeout = 2 * time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = metrics.New(c.Logger)
	}
	if c.Engines == nil {
		c.Engines = newDuckDB
	}
	bad := func(name, format string, args ...any) error {
		return &commit.Error{
			Code: commit.CodeExecutorConfig, Op: "start executor", Object: "setting " + name,
			Cause: fmt.Errorf(format, args...),
		}
	}
	switch {
	case c.Server == "":
		return c, bad("server", "the scheduler's address is missing")
	case c.Dir == "":
		return c, bad("dir", "the directory is missing")
	case c.Slots < 0 || c.Slots > maxSlots:
		return c, bad("slots", "%d isn't between 1 and %d", c.Slots, maxSlots)
	case c.Memory < int64(c.Slots)*minSlotMemory:
		return c, bad("memory", "%d bytes are less than %d for each of %d slots", c.Memory, minSlotMemory, c.Slots)
	case c.ID != "" && !validID(c.ID):
		return c, bad("id", "%q has other characters than letters, digits, '-', '_' and '.', or is longer than 128", c.ID)
	}
	return c, nil
}
