package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// handshakeVersion is the ApiVersions version that brokers are asked in: the last one before ClusterId and NodeId,
// which are ours to check. An older broker answers UNSUPPORTED_VERSION with its own range and is asked again.
const handshakeVersion = 4

// software is what brokers see as client software where no client told its own.
const software = "streamkeeper"

// upstream is a connection to a broker. It is used by one client connection, or by the probe.
type upstream struct {
	*stream
	to       endpoint
	versions *versions
	features kmsg.ApiVersionsResponse // as the broker sent it; keys are in versions
	lastUse  time.Time                // of the receiver only
	sticky   string                   // of the receiver only: what its end means to the client, why it can't be replaced; empty: it can
	watched  bool                     // of the receiver only
}

// versions are the ranges that a broker serves, by key.
type versions [kmsg.MaxKey + 1]struct {
	min, max int16
	known    bool
}

func (v *versions) max(key int16) int16 {
	if key < 0 || int(key) >= len(v) || !v[key].known {
		return -1
	}
	return v[key].max
}

// dial connects to e and asks it for its versions.
func (g *Gateway) dial(ctx context.Context, e endpoint, client *kmsg.ApiVersionsRequest) (*upstream, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := g.cfg.Connect(ctx, e.addr())
	if err != nil {
		return nil, fmt.Errorf("connect to %v: %w", e, err)
	}
	u := &upstream{stream: newStream(conn, upstreamReadBytes, upstreamWriteBytes, g.limits.StallTimeout), to: e, lastUse: time.Now()}
	u.beforeRead = func() error { return u.w.Flush() }
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err = u.handshake(client)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("ask %v for its API versions: %w", e, err)
	}
	return u, nil
}

func (e endpoint) String() string {
	if e.id < 0 {
		return e.addr()
	}
	return "broker " + strconv.Itoa(int(e.id)) + " (" + e.addr() + ")"
}

// exchange sends a request and waits for its answer; only while nothing else is under way.
func (u *upstream) exchange(req kmsg.Request) (kmsg.Response, error) {
	id := software
	frame, err := u.exchangeRaw(wire.AppendRequest(nil, 0, &id, req))
	if err != nil {
		return nil, err
	}
	_, body, err := wire.ParseResponseHeader(req.Key(), req.GetVersion(), frame)
	if err != nil {
		return nil, err
	}
	return parseUpstream(req.Key(), req.GetVersion(), body)
}

func (u *upstream) exchangeRaw(frame []byte) ([]byte, error) {
	if _, err := u.w.Write(frame); err != nil {
		return nil, err
	}
	return u.readFrame(nil)
}

// readFrame reads a response frame without its length prefix. As it is held in memory it is bounded; what is passed on in parts is not.
func (u *upstream) readFrame(buf []byte) ([]byte, error) {
	if _, err := u.peekLength(4, wire.FrameBytesMax); err != nil {
		return nil, unexpected(err)
	}
	frame, err := wire.ReadFrame(u.r, buf, wire.FrameBytesMax)
	return frame, unexpected(err)
}

// parseUpstream decodes a response of the cluster. Unlike requests it is not bounded below the frame limit (the
// Metadata of a very large cluster must pass), and its author is trusted to know its schema.
func parseUpstream(key, version int16, body []byte) (kmsg.Response, error) {
	resp := kmsg.ResponseForKey(key)
	if resp == nil {
		return nil, &wire.UnknownKeyError{Key: key, Version: version}
	}
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		return nil, &wire.BodyError{Key: key, Version: version, Response: true, Size: len(body), Err: err}
	}
	return resp, nil
}

// handshake asks for the broker's versions. client is the client's own ApiVersions request, so that the broker's
// metrics show its software and not ours; nil where there is none.
func (u *upstream) handshake(client *kmsg.ApiVersionsRequest) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = software, "1"
	if client != nil && client.ClientSoftwareName != "" {
		req.ClientSoftwareName, req.ClientSoftwareVersion = client.ClientSoftwareName, client.ClientSoftwareVersion
	}
	version := int16(handshakeVersion)
	for {
		req.SetVersion(version)
		id := software
		frame, err := u.exchangeRaw(wire.AppendRequest(nil, 0, &id, req))
		if err != nil {
			return err
		}
		resp, err := parseApiVersions(version, frame)
		if err != nil {
			return err
		}
		if resp.ErrorCode == unsupportedVersion.Code {
			supported := int16(0)
			for _, k := range resp.ApiKeys {
				if k.ApiKey == apiVersions {
					supported = k.MaxVersion
				}
			}
			if supported >= version {
				return errors.New("it refuses the version of ApiVersions that it offers")
			}
			version = supported
			continue
		}
		if resp.ErrorCode != 0 {
			return fmt.Errorf("it answers with error %v", errorName(resp.ErrorCode))
		}
		u.versions = new(versions)
		for _, k := range resp.ApiKeys {
			if k.ApiKey >= 0 && int(k.ApiKey) < len(u.versions) {
				v := &u.versions[k.ApiKey]
				v.min, v.max, v.known = k.MinVersion, k.MaxVersion, true
			}
		}
		resp.ApiKeys = nil
		u.features = *resp
		return nil
	}
}

// parseApiVersions decodes an answer to ApiVersions, which is in version 0 where it says UNSUPPORTED_VERSION.
func parseApiVersions(version int16, frame []byte) (*kmsg.ApiVersionsResponse, error) {
	_, body, err := wire.ParseResponseHeader(apiVersions, version, frame)
	if err != nil {
		return nil, err
	}
	if len(body) >= 2 && int16(uint16(body[0])<<8|uint16(body[1])) == unsupportedVersion.Code {
		version = 0
	}
	resp, err := parseUpstream(apiVersions, version, body)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.ApiVersionsResponse), nil
}
