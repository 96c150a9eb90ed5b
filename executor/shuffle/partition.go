package shuffle

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Partitioner spreads the rows of batches over output partitions. It is for one
// goroutine.
type Partitioner interface {
	// Partition hands out the rows of b, each exactly once, in their order
	// within an output. The parts are valid during the call only.
	Partition(ctx context.Context, b arrow.RecordBatch, emit func(output int, part arrow.RecordBatch) error) error
}

// Single keeps all rows together in output 0.
type Single struct{}

// Partition implements Partitioner.
func (Single) Partition(_ context.Context, b arrow.RecordBatch, emit func(int, arrow.RecordBatch) error) error {
	return emit(0, b)
}

// roundRobinRows is what goes to one output before it is the next one's turn.
// It is small enough to spread evenly and large enough that a handful of rows
// makes one data file and not one for each writer.
const roundRobinRows = 2048

// RoundRobin deals out slices of the rows by turns. The outcome depends only on
// the rows, their order and the start, so that a task that runs again gives
// the same outputs.
type RoundRobin struct {
	outputs, turn int
	// used counts the rows that went out in this turn.
	used int64
}

// NewRoundRobin deals to outputs partitions, beginning with start modulo
// outputs: tasks that begin at different outputs spread short inputs too.
func NewRoundRobin(outputs, start int) *RoundRobin {
	return &RoundRobin{outputs: outputs, turn: start % outputs}
}

// Partition implements Partitioner.
func (p *RoundRobin) Partition(_ context.Context, b arrow.RecordBatch, emit func(int, arrow.RecordBatch) error) error {
	for from := int64(0); from < b.NumRows(); {
		to := min(b.NumRows(), from+roundRobinRows-p.used)
		s := b.NewSlice(from, to)
		err := emit(p.turn, s)
		s.Release()
		if err != nil {
			return err
		}
		if p.used += to - from; p.used == roundRobinRows {
			p.used, p.turn = 0, (p.turn+1)%p.outputs
		}
		from = to
	}
	return nil
}

// HashFunc gives a hash for each row of a batch; equal keys have equal hashes in
// every process.
type HashFunc func(b arrow.RecordBatch) (func(row int) uint64, error)

// Hash brings rows with equal hashes to one output.
type Hash struct {
	outputs int
	hash    HashFunc
	rows    [][]int32
}

// NewHash spreads over outputs partitions by hash.
func NewHash(outputs int, hash HashFunc) *Hash {
	return &Hash{outputs: outputs, hash: hash, rows: make([][]int32, outputs)}
}

// Partition implements Partitioner.
func (p *Hash) Partition(ctx context.Context, b arrow.RecordBatch, emit func(int, arrow.RecordBatch) error) error {
	hash, err := p.hash(b)
	if err != nil {
		return err
	}
	for i := range p.rows {
		p.rows[i] = p.rows[i][:0]
	}
	for row := range int(b.NumRows()) {
		// A table partition's hash may be small numbers; its low bits are as
		// good as any after mixing.
		out := mix(hash(row)) % uint64(p.outputs)
		p.rows[out] = append(p.rows[out], int32(row))
	}
	for out, rows := range p.rows {
		switch int64(len(rows)) {
		case 0:
		case b.NumRows():
			if err := emit(out, b); err != nil {
				return err
			}
		default:
			part, err := take(ctx, b, rows)
			if err != nil {
				return err
			}
			err = emit(out, part)
			part.Release()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// mix is the finaliser of SplitMix64.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// take makes a batch of the rows named, in that order. The caller releases it.
func take(ctx context.Context, b arrow.RecordBatch, rows []int32) (arrow.RecordBatch, error) {
	ib := array.NewInt32Builder(memory.DefaultAllocator)
	defer ib.Release()
	ib.AppendValues(rows, nil)
	idx := ib.NewInt32Array()
	defer idx.Release()
	cols := make([]arrow.Array, 0, b.NumCols())
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	for i, c := range b.Columns() {
		// The rows are in range, since they were counted from the batch.
		out, err := compute.TakeArrayOpts(ctx, c, idx, compute.TakeOptions{BoundsCheck: false})
		if err != nil {
			return nil, fmt.Errorf("pick rows: column %q: %w", b.ColumnName(i), err)
		}
		cols = append(cols, out)
	}
	return array.NewRecordBatch(b.Schema(), cols, int64(len(rows))), nil
}
