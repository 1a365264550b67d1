//go:build !unix

package gateway

// gone can't look without waiting here: a connection that the broker closed is noticed by the request that fails.
func (u *upstream) gone() bool { return u.r.Buffered() > 0 }
