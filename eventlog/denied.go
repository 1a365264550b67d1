package eventlog

import (
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
)

// denials are the partitions that the cluster does not let us read: rights can be taken away, and given back, under a running process. The tail asks on; that a
// partition is denied has to be known elsewhere, because nothing else shows in it that it has an end which is not reached.
type denials struct {
	mu sync.Mutex
	by map[int32]error
}

// unauthorized says that the cluster refuses a right on a topic.
func unauthorized(err error) bool {
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed)
}

// note takes the outcome of a read of p. What no broker answered changes nothing; where one answers anything else it has looked at the rights first.
func (d *denials) note(p int32, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var answered *kerr.Error
	switch {
	case err == nil, errors.As(err, &answered) && !unauthorized(err), errors.Is(err, errNoLeader):
		delete(d.by, p)
	case unauthorized(err):
		if d.by == nil {
			d.by = map[int32]error{}
		}
		d.by[p] = err
	}
}

// Denied implements Log.
func (k *Kafka) Denied(p int32) error {
	k.denials.mu.Lock()
	err := k.denials.by[p]
	k.denials.mu.Unlock()
	if err != nil {
		return fmt.Errorf("the %s can't be read: the process needs READ and DESCRIBE on %s: %w", k.cfg.what, k.id.Topic, err)
	}
	if err = k.leaders.denial(); err != nil {
		return fmt.Errorf("the %s can't be seen: the process needs DESCRIBE on %s: %w", k.cfg.what, k.id.Topic, err)
	}
	return nil
}
