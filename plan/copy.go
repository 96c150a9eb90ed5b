package plan

// WithInput copies an operator, with another input; nil takes its input out. A
// leaf, which has none, is copied as it is. What the operator's fields point to
// is shared with the original.
func WithInput(n, input Node) Node {
	switch n := n.(type) {
	case *Exchange:
		c := *n
		c.Input = input
		return &c
	case *Write:
		c := *n
		c.Input = input
		return &c
	case *Coalesce:
		c := *n
		c.Input = input
		return &c
	case *Commit:
		c := *n
		c.Input = input
		return &c
	case *Query:
		c := *n
		return &c
	case *ShuffleRead:
		c := *n
		return &c
	case *External:
		c := *n
		return &c
	default:
		return n
	}
}

// Rewrite copies the operators from the top to the leaf and lets change write
// into the copies. Maps and slices are shared with the original, so change puts
// others in their place and doesn't write into them.
func Rewrite(n Node, change func(Node)) Node {
	var input Node
	if in := n.Inputs(); len(in) > 0 && in[0] != nil {
		input = Rewrite(in[0], change)
	}
	own := WithInput(n, input)
	change(own)
	return own
}
