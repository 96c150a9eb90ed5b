package wire

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// NewLimitedAllocator is for reading Arrow streams from outside: a compressed
// buffer says itself how large it gets, and a hostile one would take all memory.
// An allocation above MaxMessage panics, which Arrow's readers make an error.
func NewLimitedAllocator() memory.Allocator { return limited{memory.DefaultAllocator} }

type limited struct{ memory.Allocator }

func (l limited) Allocate(size int) []byte {
	check(size)
	return l.Allocator.Allocate(size)
}

func (l limited) Reallocate(size int, b []byte) []byte {
	check(size)
	return l.Allocator.Reallocate(size, b)
}

func check(size int) {
	if size < 0 || size > MaxMessage {
		panic(fmt.Errorf("%w: a buffer of %d bytes, and %d are allowed", ErrTooLarge, size, MaxMessage))
	}
}
