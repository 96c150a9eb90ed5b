package cleanup

// Parts of the theorem that tests leave out.
var (
	AnyState = func(c *Cleaner) { c.broken.anyState = true }
	Guess    = func(c *Cleaner) { c.broken.guess = true }
	AnyCount = func(c *Cleaner) { c.broken.anyCount = true }
	NoRecord = func(c *Cleaner) { c.broken.noRecord = true }
)
