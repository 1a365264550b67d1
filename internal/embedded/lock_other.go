//go:build !unix

package embedded

import "errors"

// lock refuses: without a lock two processes could write one directory and destroy it.
func lock(string) (release func() error, err error) {
	return nil, errors.New("the embedded log needs a system with flock(2)")
}
