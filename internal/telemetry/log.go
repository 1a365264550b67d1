package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
)

// NewLogger returns a logger that writes to w. level is one of debug, info, warn, error; format is text, json or auto:
// text where w is a terminal, JSON elsewhere. Text has colours on a terminal only, and never where NO_COLOR is set.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	terminal := isTerminal(w)
	switch format {
	case "auto":
		if terminal {
			return textLogger(w, l, terminal), nil
		}
		return jsonLogger(w, l), nil
	case "text":
		return textLogger(w, l, terminal), nil
	case "json":
		return jsonLogger(w, l), nil
	}
	return nil, fmt.Errorf("log format %q: want auto, text or json", format)
}

func textLogger(w io.Writer, level slog.Level, terminal bool) *slog.Logger {
	_, plain := os.LookupEnv("NO_COLOR")
	return slog.New(tint.NewHandler(w, &tint.Options{
		Level: level, TimeFormat: "15:04:05.000", NoColor: plain || !terminal,
	}))
}

func jsonLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: durations}))
}

// durations writes a duration as "1.5s": the default is a bare number of nanoseconds.
func durations(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().Round(time.Microsecond).String())
	}
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
