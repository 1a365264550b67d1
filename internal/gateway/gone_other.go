//go:build !unix

package gateway

import "net"

// gone can't look without waiting here: a connection that the broker closed is noticed by the request that fails.
func (u *upstream) gone() bool { return u.r.Buffered() > 0 }

// closed can't look either.
func (u *upstream) closed() bool { return false }

// awaitRead can't wait without taking anything here.
func (u *upstream) awaitRead() bool { return false }

// takesMore can't look: nothing is spliced here, so errors say whose they are.
func takesMore(net.Conn) bool { return true }
