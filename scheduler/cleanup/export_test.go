package cleanup

// Parts of the theorem that tests leave out.
var (
	AnyState = func(c *Cleaner) { c.broken.anyState = true }
	Guess    = func(c *Cleaner) { c.broken.guess = true }
	AnyCount = func(c *Cleaner) { c.broken.anyCount = true }
	NoRecord = func(c *Cleaner) { c.broken.noRecord = true }
	AnyAge   = func(c *Cleaner) { c.broken.anyAge = true }
)

// InOrder has a Cleaner delete one file at a time, so that a history can be drawn
// and drawn again.
func InOrder(c *Cleaner) { c.atOnce = 1 }
