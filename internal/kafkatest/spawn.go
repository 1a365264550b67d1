package kafkatest

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawner starts children from one thread that never ends. The kernel's "kill the child when its parent dies" means
// the parent *thread*: a child started from an ordinary goroutine would be killed when the Go runtime gives up the
// thread it happened to run on.
type spawner struct {
	once sync.Once
	jobs chan spawnJob
}

type spawnJob struct {
	cmd  *exec.Cmd
	done chan error
}

var theSpawner spawner

func (s *spawner) start(cmd *exec.Cmd) error {
	s.once.Do(func() {
		s.jobs = make(chan spawnJob)
		go func() {
			runtime.LockOSThread() // never unlocked
			for j := range s.jobs {
				j.done <- j.cmd.Start()
			}
		}()
	})
	cmd.SysProcAttr = childAttr()
	j := spawnJob{cmd: cmd, done: make(chan error, 1)}
	s.jobs <- j
	return <-j.done
}
