package commit

import (
	"encoding/binary"
	"slices"
)

// Clone is an independent machine in the same state: what is done to one doesn't
// show in the other. Reads, units and requests are immutable and shared. It is
// what lets an exploration go on from one state in several ways.
func (m *Machine) Clone() *Machine {
	c := *m
	units := make(map[*unitRun]*unitRun, len(m.units))
	c.units = make([]*unitRun, len(m.units))
	for i, u := range m.units {
		n := *u
		units[u], c.units[i] = &n, &n
	}
	moved := func(us []*unitRun) []*unitRun {
		out := make([]*unitRun, len(us))
		for i, u := range us {
			out[i] = units[u]
		}
		return out
	}
	c.groups = make([][]*unitRun, len(m.groups))
	for i, g := range m.groups {
		c.groups[i] = moved(g)
	}
	sent := make(map[*sentRun]*sentRun, len(m.sent))
	copyOf := func(s *sentRun) *sentRun {
		if s == nil {
			return nil
		}
		if n := sent[s]; n != nil {
			return n
		}
		n := *s
		n.units = moved(s.units)
		sent[s] = &n
		return &n
	}
	c.sent = make([]*sentRun, len(m.sent))
	for i, s := range m.sent {
		c.sent[i] = copyOf(s)
	}
	c.current, c.fresh, c.out = copyOf(m.current), copyOf(m.fresh), nil
	return &c
}

// AppendState appends an encoding of everything that decides what the machine
// does next, and of nothing else: two machines over the same units with equal
// encodings answer equal events by equal actions, apart from waits, texts and
// the counts of retries. read encodes a read of the table.
func (m *Machine) AppendState(b []byte, read func([]byte, Metadata) []byte) []byte {
	b = append(b, byte(m.state), byte(min(m.failures, m.opts.MaxAttempts)), byte(min(m.retries, 1)), flags(m.pause))
	for _, u := range m.units {
		reason := Reason("")
		if u.wanted != nil {
			reason = u.wanted.reason
		}
		b = append(b, flags(u.done, u.permitted, u.sentBefore, u.blind, u.elsewhere, u.wanted != nil), byte(u.attempts))
		b = append(b, reason...)
		b = binary.AppendVarint(b, u.unit.Origin.Number)
	}
	for _, g := range m.groups {
		b = append(b, 0xfe)
		b = m.appendUnits(b, g)
	}
	for _, s := range m.sent {
		b = m.appendSent(append(b, 0xfd), s)
	}
	for _, s := range []*sentRun{m.current, m.fresh} {
		b = append(b, 0xfc)
		if s != nil {
			b = m.appendSent(b, s)
			b = m.appendUnits(b, s.units)
			b = read(b, s.base)
		}
	}
	b = append(b, 0xfb)
	if m.last != nil {
		b = append(b, m.last.UUID()...)
		b = binary.AppendVarint(b, m.last.Clock().Number)
	}
	return b
}

func (m *Machine) appendSent(b []byte, s *sentRun) []byte {
	b = append(b, s.request.ID...)
	b = append(b, flags(s.dead, s.passed))
	if s.dead {
		return b // its answer plays no role any more
	}
	b = append(b, s.answer.Class...)
	return binary.AppendVarint(b, int64(s.answer.Status))
}

func (m *Machine) appendUnits(b []byte, us []*unitRun) []byte {
	for _, u := range us {
		b = append(b, byte(slices.Index(m.units, u)))
	}
	return b
}

func flags(bs ...bool) (f byte) {
	for i, on := range bs {
		if on {
			f |= 1 << i
		}
	}
	return f
}
