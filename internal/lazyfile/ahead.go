package lazyfile

// runLength is how many groups in a row a column must have been read in before
// the next one is fetched ahead. What is fetched in vain at the end of a run is
// bounded by that: an eighth.
const runLength = 8

// foresee notes that a part is read, and fetches in the background what is likely
// to be read next: the columns of the same group that were read in the group
// before, and the column's next group after a long run. f.mu is held.
func (f *File) foresee(p Part) {
	key := [2]int{p.Group, p.Column}
	if f.read[key] {
		return
	}
	f.read[key] = true
	run := 1
	for run <= runLength && f.read[[2]int{p.Group - run, p.Column}] {
		run++
	}
	for _, i := range f.groups[p.Group] {
		next := [2]int{p.Group, f.parts[i].Column}
		if !f.read[next] && f.read[[2]int{p.Group - 1, next[1]}] {
			f.fetchAhead(f.parts[i])
		}
	}
	if run <= runLength {
		return
	}
	for _, i := range f.groups[p.Group+1] {
		if f.parts[i].Column == p.Column {
			f.fetchAhead(f.parts[i])
		}
	}
}

// fetchAhead fetches in the background; whoever reads it meets its errors.
func (f *File) fetchAhead(p Part) {
	if f.ctx.Err() == nil {
		f.ahead.Go(func() { _ = f.fetch(span{p.Start, p.End}) })
	}
}
