//go:build unix

package gateway

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// gone says that the broker has closed the connection, or sent something unasked. It looks without waiting, and is for while nothing is awaited.
func (u *upstream) gone() bool {
	if u.r.Buffered() > 0 {
		return true
	}
	n, err, ok := u.look()
	return ok && (n > 0 || ended(n, err))
}

// closed says that the broker has closed the connection, and that nothing is left in it to be read. It looks without waiting, from any goroutine.
func (u *upstream) closed() bool {
	n, err, ok := u.look()
	return ok && ended(n, err)
}

// awaitRead waits until something is to be read, the end as well, and takes nothing. False: it can't, or the connection was closed here.
// While it waits, another goroutine's read waits behind it.
func (u *upstream) awaitRead() bool {
	raw, err := u.raw()
	if raw == nil || err != nil {
		return false
	}
	return raw.Read(func(fd uintptr) bool {
		n, err := peek(fd)
		return n > 0 || ended(n, err)
	}) == nil
}

// look peeks. Not ok: it is no socket of the system's, of which nothing can be said.
func (u *upstream) look() (n int, err error, ok bool) {
	raw, err := u.raw()
	if raw == nil || err != nil {
		return 0, err, err != nil
	}
	if failed := raw.Control(func(fd uintptr) { n, err = peek(fd) }); failed != nil {
		err = failed
	}
	return n, err, true
}

func (u *upstream) raw() (syscall.RawConn, error) {
	sc, ok := u.conn.(syscall.Conn)
	if !ok {
		return nil, nil
	}
	return sc.SyscallConn()
}

// takesMore says that a socket can be written to: it is neither closed nor full.
func takesMore(conn net.Conn) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	takes := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(p, 0)
		takes = err != nil || n > 0 && p[0].Revents&unix.POLLOUT != 0 && p[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) == 0
	})
	return err == nil && takes
}

func peek(fd uintptr) (int, error) {
	var b [1]byte
	n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n, err
}

// ended says that a peek found the end.
func ended(n int, err error) bool {
	return n <= 0 && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
}
