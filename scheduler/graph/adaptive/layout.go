package adaptive

import "math"

// maxTasks bounds the tasks that splitting may lead to: sizes are what executors
// say.
const maxTasks = 10000

// Policy says what tasks of a stage are wanted. Sizes are bytes of shuffle output.
type Policy struct {
	// Tasks is how many tasks are wanted, as far as sizes allow: what the slots of
	// the cluster make of it.
	Tasks int
	// MinTask is below what a task isn't worth being one, MaxTask what one task
	// should read at most.
	MinTask, MaxTask int64
	// MinSplit is what the parts of a split partition have at least; 0 for MinTask.
	MinSplit int64
	// KeepOne keeps a task where there are no rows at all: it gives the schema.
	KeepOne bool
}

// Output is one output partition of one task of the stage that is read.
type Output struct{ Rows, Bytes int64 }

// Piece is what a task reads of one output: its rows First ≤ n < End, all of them
// when End is 0.
type Piece struct {
	// Task is the producer, Partition its output partition.
	Task      int `json:"t,omitempty"`
	Partition int `json:"p,omitempty"`
	// Rows is the number of rows in the whole output.
	Rows  int64 `json:"n,omitempty"`
	First int64 `json:"f,omitempty"`
	End   int64 `json:"e,omitempty"`
}

// Layout is how the input of a stage is cut into tasks. It isn't changed once it is
// made.
type Layout struct {
	// Tasks are the pieces that each task reads, in plan order.
	Tasks [][]Piece `json:"tasks"`
	// Partitions is how many tasks there would have been without it; Empty how
	// many of those had no rows, and Split how many were cut up.
	Partitions int `json:"partitions"`
	Empty      int `json:"empty,omitempty"`
	Split      int `json:"split,omitempty"`
}

// New cuts what a stage reads into tasks: outputs are by task, and in each by output
// partition. All tasks have the same number of partitions.
func New(outputs [][]Output, p Policy) *Layout {
	l := &Layout{}
	if len(outputs) > 0 {
		l.Partitions = len(outputs[0])
	}
	sizes := make([]int64, l.Partitions)
	var total int64
	for _, task := range outputs {
		for n, o := range task {
			sizes[n] = sum(sizes[n], o.size())
			total = sum(total, o.size())
		}
	}
	share := min(max(total/int64(max(p.Tasks, 1)), p.MinTask, 1), max(p.MaxTask, 1))
	part := max(share, p.MinSplit, total/maxTasks+1)
	var open []Piece
	var have int64
	flush := func() {
		if len(open) > 0 {
			l.Tasks = append(l.Tasks, open)
			open, have = nil, 0
		}
	}
	for n, size := range sizes {
		switch pieces := piecesOf(outputs, n); {
		case len(pieces) == 0:
			l.Empty++
		case size/2 > part:
			flush()
			cuts := split(outputs, pieces, (size+part-1)/part)
			l.Tasks = append(l.Tasks, cuts...)
			l.Split++
		default:
			if have > 0 && sum(have, size/2) > share {
				flush()
			}
			open, have = append(open, pieces...), sum(have, size)
		}
	}
	flush()
	if len(l.Tasks) == 0 && p.KeepOne && len(outputs) > 0 && l.Partitions > 0 {
		l.Tasks = [][]Piece{{{}}}
	}
	return l
}

// size is what an output counts for: rows count even if no bytes are told.
func (o Output) size() int64 {
	if o.Rows <= 0 {
		return 0
	}
	return max(o.Bytes, 1)
}

// sum adds sizes without running over.
func sum(a, b int64) int64 {
	if a > math.MaxInt64/4-b {
		return math.MaxInt64 / 4
	}
	return a + b
}

// piecesOf are the outputs of a partition that have rows.
func piecesOf(outputs [][]Output, partition int) []Piece {
	var out []Piece
	for t := range outputs {
		if rows := outputs[t][partition].Rows; rows > 0 {
			out = append(out, Piece{Task: t, Partition: partition, Rows: rows})
		}
	}
	return out
}

// split cuts the pieces of one partition into parts of about the same size. A cut
// falls where the part's bytes end, as far as rows of an output are of one size.
func split(outputs [][]Output, pieces []Piece, parts int64) [][]Piece {
	size := func(p Piece) int64 { return min(outputs[p.Task][p.Partition].size(), math.MaxInt64/4) }
	var left int64
	for _, p := range pieces {
		left = sum(left, size(p))
	}
	var out [][]Piece
	var open []Piece
	room := left / parts
	for _, p := range pieces {
		perRow := float64(size(p)) / float64(p.Rows)
		for first := int64(0); first < p.Rows; {
			rows := p.Rows - first
			if parts > 1 {
				rows = min(rows, max(int64(float64(room)/perRow), 1))
			}
			piece := p
			if piece.First, piece.End = first, first+rows; rows == p.Rows {
				piece.First, piece.End = 0, 0
			}
			open, first = append(open, piece), first+rows
			took := int64(float64(rows) * perRow)
			left, room = max(left-took, 0), room-took
			if parts > 1 && float64(room) < perRow {
				out, open = append(out, open), nil
				parts--
				room = left / parts
			}
		}
	}
	if len(open) > 0 {
		out = append(out, open)
	}
	return out
}

// Fits says whether the outputs of a producer's later attempt have the rows that the
// layout was made for: rows by output partition.
func (l *Layout) Fits(task int, rows []int64) bool {
	want := make(map[int]int64)
	for _, pieces := range l.Tasks {
		for _, p := range pieces {
			if p.Task == task {
				want[p.Partition] = p.Rows
			}
		}
	}
	for n, have := range rows {
		if have != want[n] {
			return false
		}
		delete(want, n)
	}
	return len(want) == 0
}

// Check says whether the layout can be one of a stage that reads so many tasks with
// so many output partitions.
func (l *Layout) Check(tasks, partitions int) bool {
	for _, pieces := range l.Tasks {
		for _, p := range pieces {
			if p.Task < 0 || p.Task >= tasks || p.Partition < 0 || p.Partition >= partitions || p.First < 0 || p.End < 0 || p.End > p.Rows {
				return false
			}
		}
	}
	return true
}
