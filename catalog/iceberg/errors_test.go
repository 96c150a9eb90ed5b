package iceberg_test

import "errors"

func errorAs[T error](err error, to *T) bool { return errors.As(err, to) }
