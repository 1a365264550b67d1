package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// formerFile is where, below --data-dir, a replica keeps its member id in the ownership group.
const formerFile = "member.json"

// formerMember remembers the member of the ownership group that a replica is, so that the process that follows a killed one need not wait
// for the end of its session (D5). The former process must be dead for certain, or a live one would be thrown out of the group: it held the
// lock of the data directory, and its kernel would not have given the lock to anybody else. So the memory counts only where the
// very same file, of the same start of the same machine, is locked by us now. A directory that was copied, or mounted elsewhere, does not count.
type formerMember struct {
	file string
	lock string // the locked file of the data directory
	log  *slog.Logger
}

// memberMemory is what the file holds.
type memberMemory struct {
	Topic  string `json:"topic"`
	NodeID int32  `json:"nodeId"`
	Member string `json:"member"`
	// Place is the machine's start and the locked file.
	Place string `json:"place"`
}

// read returns the member id of the former process, "" where there is none that is certainly dead. The data directory's lock must be held.
func (f formerMember) read(topic string, node int32) string {
	raw, err := os.ReadFile(f.file)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	var m memberMemory
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		f.log.Warn("the former member id can't be read, its session has to end", "file", f.file, "err", err)
		return ""
	}
	if place := lockPlace(f.lock); place == "" || place != m.Place || m.Topic != topic || m.NodeID != node {
		return ""
	}
	return m.Member
}

// memory returns a function that remembers a member id and does not wait for the disk, on which the ownership of shards must not depend. Of several that
// wait the last one counts.
func (f formerMember) memory(topic string, node int32) func(member string) {
	var mu sync.Mutex
	var next string
	writing := false
	return func(member string) {
		mu.Lock()
		defer mu.Unlock()
		next = member
		if writing {
			return
		}
		writing = true
		go func() {
			for done := ""; ; {
				mu.Lock()
				if next == done {
					writing = false
					mu.Unlock()
					return
				}
				done = next
				mu.Unlock()
				f.write(topic, node, done)
			}
		}()
	}
}

// write remembers the member id. It need not outlive the machine: after another start of it the memory does not count.
func (f formerMember) write(topic string, node int32, member string) {
	raw, err := json.Marshal(memberMemory{Topic: topic, NodeID: node, Member: member, Place: lockPlace(f.lock)})
	if err == nil {
		temporary := filepath.Clean(f.file) + ".new"
		if err = os.WriteFile(temporary, raw, 0o600); err == nil {
			err = os.Rename(temporary, f.file)
		}
	}
	if err != nil {
		f.log.Warn("the member id can't be remembered: after a kill the next start waits for the session's end", "file", f.file, "err", err)
	}
}
