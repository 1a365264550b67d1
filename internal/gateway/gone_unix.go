//go:build unix

package gateway

import (
	"errors"
	"syscall"
)

// gone says that the broker has closed the connection, or sent something unasked. It looks without waiting.
func (u *upstream) gone() bool {
	if u.r.Buffered() > 0 {
		return true
	}
	sc, ok := u.conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		// No error is a byte nobody asked for, or the end.
		gone = !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	})
	return gone || err != nil
}
