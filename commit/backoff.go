package commit

import "time"

// wait pauses before the next read; units that ran out of time end here.
func (m *Machine) wait() {
	m.pause = false
	if m.allDone() {
		m.state = stateDone
		return
	}
	until := m.now.Add(m.backoff())
	if d := m.opts.Deadline; !d.IsZero() && until.After(d) && m.now.Before(d) {
		until = d
	}
	m.state = stateWaiting
	m.emit(Wait{until})
}

// backoff doubles with each retry and is jittered over its upper half.
func (m *Machine) backoff() time.Duration {
	d := m.opts.MinWait << min(max(m.retries-1, 0), 20)
	if d > m.opts.MaxWait || d <= 0 {
		d = m.opts.MaxWait
	}
	half := d / 2
	return half + time.Duration(m.random()%uint64(half+1))
}

// random is SplitMix64.
func (m *Machine) random() uint64 {
	m.rng += 0x9e3779b97f4a7c15
	z := m.rng
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
