package iceberg

// WaitForMerge waits until the manifests that are being merged are merged.
func WaitForMerge(t *Table) { t.merger.wait.Wait() }

// ReadyMerges are the merged manifests that the next request may take.
func ReadyMerges(t *Table) []string {
	t.merger.mu.Lock()
	defer t.merger.mu.Unlock()
	var out []string
	for _, m := range t.merger.ready {
		out = append(out, m.path)
	}
	return out
}
