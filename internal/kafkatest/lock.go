package kafkatest

import (
	"os"
	"syscall"
)

// lockFile takes an exclusive lock that the kernel gives back when the process ends.
func lockFile(path string) (unlock func(), err error) {
	return flock(path, syscall.LOCK_EX)
}

// tryLockFile is lockFile for those who would not wait: ok is false while another process has the lock.
func tryLockFile(path string) (unlock func(), ok bool, err error) {
	unlock, err = flock(path, syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return nil, false, nil
	}
	return unlock, err == nil, err
}

func flock(path string, how int) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
