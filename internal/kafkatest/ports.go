package kafkatest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// Ports are taken below the range from which Linux picks the local ports of outgoing connections (32768 and up): a
// broker that is stopped and started again must find its port free, and with a port from that range some client's
// connection may sit on it by then.
const (
	portMin = 20000
	portMax = 32000
)

// portTriesMax bounds the search: with a few hundred ports in use out of 12,000, fifty misses mean something else is wrong.
const portTriesMax = 50

var portsTaken struct {
	sync.Mutex
	held []func() // keeps the lock files open, that is, the ports ours
}

// ReservePorts returns the first of n consecutive loopback ports that were free and that no other test binary using
// this function gets while this one lives.
func ReservePorts(n int) (int, error) {
	dir := filepath.Join(os.TempDir(), "streamkeeper-test-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, err
	}
	portsTaken.Lock()
	defer portsTaken.Unlock()
	var last error
	for range portTriesMax {
		first := portMin + rand.IntN(portMax-portMin-n)
		held, err := reserve(dir, first, n)
		if err == nil {
			portsTaken.held = append(portsTaken.held, held...)
			return first, nil
		}
		last = err
	}
	return 0, fmt.Errorf("no %d consecutive free ports in %d–%d: %w", n, portMin, portMax, last)
}

func reserve(dir string, first, n int) (held []func(), err error) {
	defer func() {
		if err != nil {
			for _, unlock := range held {
				unlock()
			}
		}
	}()
	for p := first; p < first+n; p++ {
		unlock, ok, err := tryLockFile(filepath.Join(dir, strconv.Itoa(p)))
		if err != nil {
			return held, err
		}
		if !ok {
			return held, errors.New("port " + strconv.Itoa(p) + " belongs to another test")
		}
		held = append(held, unlock)
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err != nil {
			return held, err
		}
		l.Close()
	}
	return held, nil
}
