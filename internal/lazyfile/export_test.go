package lazyfile

// Wait waits for what is fetched ahead.
func (f *File) Wait() { f.ahead.Wait() }
