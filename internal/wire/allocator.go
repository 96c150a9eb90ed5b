package wire

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// NewLimitedAllocator is for reading Arrow streams from outside: a compressed
// buffer says itself how large it gets, and a hostile one would take all memory.
// An allocation above MaxMessage panics, which Arrow's readers make an error.
func NewLimitedAllocator() memory.Allocator { return limited{Allocator: memory.DefaultAllocator} }

// allocator is NewLimitedAllocator for the reader of the stream that c checks: what
// dictionaries and batches are decompressed to is bounded together.
func (c *Checker) allocator() memory.Allocator {
	return limited{memory.DefaultAllocator, &c.memory}
}

type limited struct {
	memory.Allocator
	of *readerMemory // nil: what is taken isn't added up
}

func (l limited) Allocate(size int) []byte {
	l.check(size)
	return l.Allocator.Allocate(size)
}

func (l limited) Reallocate(size int, b []byte) []byte {
	l.check(size)
	return l.Allocator.Reallocate(size, b)
}

func (l limited) check(size int) {
	if size < 0 || size > MaxMessage {
		panic(fmt.Errorf("%w: a buffer of %d bytes, and %d are allowed", ErrTooLarge, size, MaxMessage))
	}
	if l.of != nil {
		if err := l.of.take(int64(size)); err != nil {
			panic(err)
		}
	}
}
