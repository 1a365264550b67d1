package http

import (
	"regexp"
	"strconv"
	"time"

	"streamkeeper/plugin"
)

// timeoutMax and the other bounds keep a slip of the pen, such as seconds for milliseconds, from being taken.
const (
	timeoutMax          = time.Hour
	connectionsMax      = 10_000
	descriptionBytesMax = 100 << 20 // Kafka takes no larger request
)

// Factory makes the plugin from settings.
func Factory() plugin.Factory {
	return plugin.Factory{
		Name:    Name,
		Summary: "in a catalogue service of your own: PUT, GET and DELETE of JSON",
		Settings: []plugin.Setting{
			{Name: "url", Doc: "address of the catalogue, e.g. https://catalogue.example.com/api"},
			{Name: "timeout.ms", Default: strconv.FormatInt(TimeoutDefault.Milliseconds(), 10), Doc: "of one request with its answer"},
			{Name: "description.bytes.max", Default: strconv.Itoa(DescriptionBytesMaxDefault), Doc: "largest JSON that is sent; larger descriptions are refused for good"},
			{Name: "connections.max", Default: strconv.Itoa(ConnectionsDefault), Doc: "connections to the catalogue"},
			{Name: "auth.header", Default: "Authorization", Doc: "name of the header with credentials"},
			{Name: "auth.value", Doc: "its value; better keep it out of the command line", Secret: true},
			{Name: "auth.env", Doc: "environment variable that holds its value"},
			{Name: "auth.file", Doc: "file that holds its value; read for each request"},
			{Name: "tls.ca.file", Doc: "certificates (PEM) that the catalogue's is checked with, in place of the system's"},
			{Name: "tls.cert.file", Doc: "our certificate (PEM), read for each connection"},
			{Name: "tls.key.file", Doc: "its key (PEM)"},
			{Name: "tls.server.name", Doc: "name to check in the catalogue's certificate, in place of the host's"},
		},
		Open: open,
	}
}

func open(v *plugin.Values) (plugin.Plugin, error) {
	cfg := Config{
		URL:                 v.URL("url"),
		Timeout:             v.Milliseconds("timeout.ms", time.Millisecond, timeoutMax),
		DescriptionBytesMax: int(v.Int("description.bytes.max", 1, descriptionBytesMax)),
		Connections:         int(v.Int("connections.max", 1, connectionsMax)),
		AuthHeader:          v.Text("auth.header"), AuthValue: v.Text("auth.value"), AuthEnv: v.Text("auth.env"), AuthFile: v.Text("auth.file"),
		CAFile: v.Text("tls.ca.file"), CertFile: v.Text("tls.cert.file"), KeyFile: v.Text("tls.key.file"), ServerName: v.Text("tls.server.name"),
	}
	if !headerName.MatchString(cfg.AuthHeader) {
		v.Wrong("auth.header", "want the name of a header")
	}
	if cfg.AuthEnv != "" || cfg.AuthFile != "" {
		if _, err := cfg.credentials(); err != nil { // a mistake shows at start
			v.Wrong(authSource(cfg), err.Error())
		}
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	p, err := New(cfg)
	if err != nil {
		return nil, err // not p: a nil *Plugin is no nil Plugin
	}
	return p, nil
}

func authSource(cfg Config) string {
	if cfg.AuthEnv != "" {
		return "auth.env"
	}
	return "auth.file"
}

// headerName is a token of RFC 9110.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
