package http

import (
	"encoding/json"
	"fmt"
	"mime"
	nethttp "net/http"
	"strings"

	"streamkeeper/plugin"
)

// ReasonBytesMax is how much of an answer's reason is passed on: enough for a sentence that a person wrote.
const ReasonBytesMax = 500

// answer is what came back.
type answer struct {
	status int
	header nethttp.Header
	body   []byte
	cut    bool // there is more of the body
}

func (a answer) ok() bool { return 200 <= a.status && a.status <= 299 }

// gone says that nothing is there.
func (a answer) gone() bool {
	return a.status == nethttp.StatusNotFound || a.status == nethttp.StatusGone
}

// refusedForGood says that repeating a PUT can't help.
func (a answer) refusedForGood() bool {
	switch a.status {
	case nethttp.StatusBadRequest, nethttp.StatusRequestEntityTooLarge, nethttp.StatusRequestURITooLong, nethttp.StatusUnsupportedMediaType,
		nethttp.StatusUnprocessableEntity, nethttp.StatusUnavailableForLegalReasons:
		return true
	}
	return false
}

// failure is the error of an answer that is no success; a PUT may be refused for good.
func (a answer) failure(put bool) error {
	text := a.describe()
	if put && a.refusedForGood() {
		return plugin.Permanent(text)
	}
	return plugin.Transient(text, nil)
}

func (a answer) describe() string {
	text := fmt.Sprintf("the topology catalogue answered %d", a.status)
	if name := nethttp.StatusText(a.status); name != "" {
		text += " " + name
	}
	if a.status >= 300 && a.status <= 399 {
		if to := a.header.Get("Location"); to != "" {
			text += fmt.Sprintf(" (to %s)", clip(to))
		}
	}
	if wait := a.header.Get("Retry-After"); wait != "" {
		text += fmt.Sprintf(" (Retry-After: %s)", clip(wait))
	}
	if r := a.reason(); r != "" {
		text += ": " + r
	}
	return text
}

// reason is what the service says for people; "" where that is nothing, or a page for a browser.
func (a answer) reason() string {
	media, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	switch {
	case err != nil:
		return ""
	case media == "text/plain":
		return clip(string(a.body))
	case media != "application/json" && !strings.HasSuffix(media, "+json"):
		return ""
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(a.body, &fields) != nil {
		return ""
	}
	for _, name := range []string{"detail", "message", "title", "error"} {
		var text string
		if json.Unmarshal(fields[name], &text) == nil && strings.TrimSpace(text) != "" {
			return clip(text)
		}
	}
	return ""
}

// clip makes one line of at most ReasonBytesMax bytes.
func clip(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) <= ReasonBytesMax {
		return s
	}
	return strings.ToValidUTF8(s[:ReasonBytesMax], "") + "…"
}
