package flightsource

// SetMaxShown bounds for how many sources tokens are kept.
func (r *Registry) SetMaxShown(n int) { r.maxShown = n }

// Shown is for how many tokens are kept.
func (r *Registry) Shown() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.shown)
}
