package answers

// Used is how many bytes are held, and by how many jobs with more than a megabyte.
func (p *Pool) Used() (bytes int64, jobs int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used, len(p.shares)
}
