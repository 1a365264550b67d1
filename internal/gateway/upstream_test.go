package gateway

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// scripted is an upstream of one broker (id 1) whose answers a test decides. ApiVersions and Metadata are answered
// by itself, so that a gateway can start.
type scripted struct {
	tb   testing.TB
	ln   net.Listener
	port int32
	// versions that it offers; the default is what kmsg can.
	versions map[int16][2]int16
	// answer returns the response frames' message, or nil for none.
	answer func(h wire.Header, req kmsg.Request) kmsg.Response

	mu       sync.Mutex
	conns    []net.Conn
	accepted int
	seen     []kmsg.Request
	wg       sync.WaitGroup
}

func startScripted(tb testing.TB, addr string, answer func(wire.Header, kmsg.Request) kmsg.Response) *scripted {
	tb.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	s := &scripted{tb: tb, ln: ln, port: int32(ln.Addr().(*net.TCPAddr).Port), answer: answer, versions: map[int16][2]int16{}}
	for key := range kmsg.MaxKey + 1 {
		if m := wire.MaxVersion(int16(key)); m >= 0 {
			s.versions[int16(key)] = [2]int16{0, m}
		}
	}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.accepted++
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(c) })
		}
	})
	tb.Cleanup(s.stop)
	return s
}

// change changes versions or answer while the script runs.
func (s *scripted) change(f func(s *scripted)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *scripted) addr() string { return s.ln.Addr().String() }

// drop closes all connections, as a broker does that restarts or finds them idle.
func (s *scripted) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

func (s *scripted) stop() {
	s.ln.Close()
	s.drop()
	s.wg.Wait()
}

func (s *scripted) requests(key int16) []kmsg.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []kmsg.Request
	for _, r := range s.seen {
		if r.Key() == key {
			list = append(list, r)
		}
	}
	return list
}

func (s *scripted) serve(c net.Conn) {
	defer c.Close()
	for {
		frame, err := wire.ReadFrame(c, nil, wire.FrameBytesMax)
		if err != nil {
			return
		}
		h, err := wire.ParseHeader(frame)
		if err != nil {
			s.tb.Errorf("the gateway sent a bad header: %v", err)
			return
		}
		var resp kmsg.Response
		var req kmsg.Request
		s.mu.Lock()
		answer := s.answer
		most := s.versions[apiVersions][1]
		s.mu.Unlock()
		if h.Key == apiVersions && h.Version > most {
			resp = s.apiVersions(0, unsupportedVersion.Code)
		} else {
			if req, err = wire.ParseRequest(h.Key, h.Version, frame[h.Size:]); err != nil {
				s.tb.Errorf("the gateway sent a bad request: %v", err)
				return
			}
			s.mu.Lock()
			s.seen = append(s.seen, req)
			s.mu.Unlock()
			switch {
			case h.Key == apiVersions:
				resp = s.apiVersions(h.Version, 0)
			default:
				if answer != nil {
					resp = answer(h, req)
				}
				if resp == nil && h.Key == metadata {
					resp = s.metadata(req)
				}
			}
		}
		if resp == nil {
			continue
		}
		if _, err := c.Write(wire.AppendResponse(nil, h.CorrelationID, resp)); err != nil {
			return
		}
	}
}

func (s *scripted) apiVersions(version, code int16) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.SetVersion(version)
	resp.ErrorCode = code
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, v := range s.versions {
		if code != 0 && key != apiVersions {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = key, v[0], v[1]
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	if code == 0 {
		resp.FinalizedFeaturesEpoch = 77
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = "transaction.version", 2, 2
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, f)
		for _, sf := range []struct {
			name string
			min  int16
		}{{"from.zero", 0}, {"from.one", 1}} {
			f := kmsg.NewApiVersionsResponseSupportedFeature()
			f.Name, f.MinVersion, f.MaxVersion = sf.name, sf.min, 3
			resp.SupportedFeatures = append(resp.SupportedFeatures, f)
		}
	}
	return resp
}

func (s *scripted) metadata(req kmsg.Request) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.ClusterID = kmsg.StringPtr("scripted")
	b := kmsg.NewMetadataResponseBroker()
	s.mu.Lock()
	b.NodeID, b.Host, b.Port = 1, "127.0.0.1", s.port
	s.mu.Unlock()
	resp.Brokers = append(resp.Brokers, b)
	for _, t := range req.(*kmsg.MetadataRequest).Topics {
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, [16]byte{1, 2, 3, 4}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// eventually asks until ok, for things that another goroutine brings about and nothing announces.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			tb.Fatalf("never happened: %s", what)
		}
		time.Sleep(5 * time.Millisecond) // polling; see above
	}
}
