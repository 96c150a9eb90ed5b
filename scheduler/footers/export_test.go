package footers

import (
	"context"

	"github.com/firn-project/firn/format/footer"
)

// Fill takes all of the memory for footers, until release is called.
func (c *Checker) Fill(ctx context.Context) (release func(), err error) {
	if err := c.memory.Acquire(ctx, footer.MaxFooter); err != nil {
		return nil, err
	}
	return func() { c.memory.Release(footer.MaxFooter) }, nil
}
