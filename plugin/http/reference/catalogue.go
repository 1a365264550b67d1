package reference

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"strconv"
	"sync"

	pluginhttp "streamkeeper/plugin/http"
)

const (
	// BodyBytesMaxDefault is the largest body that is taken, like that of many services.
	BodyBytesMaxDefault = 10 << 20
	// BytesMaxDefault bounds all bodies together: it is a service in memory.
	BytesMaxDefault = 256 << 20
)

// Catalogue keeps the bodies of PUT requests by group and epoch. Use New.
type Catalogue struct {
	mux                    *nethttp.ServeMux
	bodyBytesMax, bytesMax int

	mu     sync.Mutex
	bodies map[string]map[int32][]byte // by the group's segment in the address
	bytes  int
}

// New returns an empty catalogue. 0 means the defaults.
func New(bodyBytesMax, bytesMax int) *Catalogue {
	if bodyBytesMax <= 0 {
		bodyBytesMax = BodyBytesMaxDefault
	}
	if bytesMax <= 0 {
		bytesMax = BytesMaxDefault
	}
	c := &Catalogue{mux: nethttp.NewServeMux(), bodyBytesMax: bodyBytesMax, bytesMax: bytesMax, bodies: map[string]map[int32][]byte{}}
	c.mux.HandleFunc("PUT /groups/{group}/topologies/{epoch}", c.put)
	c.mux.HandleFunc("GET /groups/{group}/topologies/{epoch}", c.get)
	c.mux.HandleFunc("DELETE /groups/{group}/topologies", c.delete)
	return c
}

// ServeHTTP answers a request.
func (c *Catalogue) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) { c.mux.ServeHTTP(w, r) }

// Groups is the number of groups for which something is stored.
func (c *Catalogue) Groups() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.bodies)
}

func (c *Catalogue) put(w nethttp.ResponseWriter, r *nethttp.Request) {
	segment, epoch, ok := place(w, r)
	if !ok {
		return
	}
	body, err := io.ReadAll(nethttp.MaxBytesReader(w, r.Body, int64(c.bodyBytesMax)))
	if _, large := errors.AsType[*nethttp.MaxBytesError](err); large {
		problem(w, nethttp.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", c.bodyBytesMax))
		return
	} else if err != nil {
		problem(w, nethttp.StatusBadRequest, "the body is cut off")
		return
	}
	if err := check(body, segment, epoch); err != nil {
		problem(w, nethttp.StatusUnprocessableEntity, err.Error())
		return
	}
	if !c.store(segment, epoch, body) {
		problem(w, nethttp.StatusInsufficientStorage, "the catalogue is full")
		return
	}
	w.WriteHeader(nethttp.StatusNoContent)
}

// check says whether the body is a description for this place.
func check(body []byte, segment string, epoch int32) error {
	var d pluginhttp.Document
	if err := json.Unmarshal(body, &d); err != nil {
		return err
	}
	switch {
	case d.Description == nil:
		return errors.New("there is no description")
	case d.TopologyEpoch != epoch:
		return fmt.Errorf("the body is of topology epoch %d, the address of %d", d.TopologyEpoch, epoch)
	}
	group, err := pluginhttp.GroupOf(segment)
	if err != nil {
		return err
	}
	if d.Group != string([]rune(group)) { // bytes that are no UTF-8 can't be in JSON
		return errors.New("the body is of another group than the address")
	}
	return nil
}

func (c *Catalogue) store(segment string, epoch int32, body []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	added := len(body) - len(c.bodies[segment][epoch])
	if added > 0 && c.bytes+added > c.bytesMax {
		return false
	}
	if c.bodies[segment] == nil {
		c.bodies[segment] = map[int32][]byte{}
	}
	c.bodies[segment][epoch] = body
	c.bytes += added
	return true
}

func (c *Catalogue) get(w nethttp.ResponseWriter, r *nethttp.Request) {
	segment, epoch, ok := place(w, r)
	if !ok {
		return
	}
	c.mu.Lock()
	body, there := c.bodies[segment][epoch]
	c.mu.Unlock()
	if !there {
		problem(w, nethttp.StatusNotFound, "nothing is stored for this group and epoch")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (c *Catalogue) delete(w nethttp.ResponseWriter, r *nethttp.Request) {
	segment := r.PathValue("group")
	c.mu.Lock()
	for _, body := range c.bodies[segment] {
		c.bytes -= len(body)
	}
	delete(c.bodies, segment)
	c.mu.Unlock()
	w.WriteHeader(nethttp.StatusNoContent)
}

// place reads group and epoch from the address.
func place(w nethttp.ResponseWriter, r *nethttp.Request) (segment string, epoch int32, ok bool) {
	segment = r.PathValue("group")
	if _, err := pluginhttp.GroupOf(segment); err != nil {
		problem(w, nethttp.StatusBadRequest, err.Error())
		return "", 0, false
	}
	n, err := strconv.ParseInt(r.PathValue("epoch"), 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != r.PathValue("epoch") {
		problem(w, nethttp.StatusBadRequest, fmt.Sprintf("%.40q is no topology epoch", r.PathValue("epoch")))
		return "", 0, false
	}
	return segment, int32(n), true
}

// problem answers with a reason in the form of RFC 9457.
func problem(w nethttp.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "title": nethttp.StatusText(status), "detail": detail})
}
