package groupconfig

import (
	"fmt"
	"strconv"
	"strings"

	"streamkeeper/shard/streams"

	"github.com/twmb/franz-go/pkg/kerr"
)

// parsed is a value that was read: number for INT, LONG and BOOLEAN (0 and 1), list for LIST, text for all, in Kafka's canonical form.
type parsed struct {
	number int64
	list   []string
	text   string
}

// trim is Java's String.trim: everything up to the blank goes, nothing else does.
func trim(s string) string { return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' }) }

func refuse(format string, args ...any) *streams.Error {
	return &streams.Error{Code: kerr.InvalidConfig.Code, Message: fmt.Sprintf(format, args...)}
}

// parse reads a value as Kafka's ConfigDef does. The texts are Kafka's.
func parse(t Type, least int64, name, text string) (parsed, *streams.Error) {
	trimmed := trim(text)
	invalid := func(why string) (parsed, *streams.Error) {
		return parsed{}, refuse("Invalid value %s for configuration %s: %s", text, name, why)
	}
	switch t {
	case Int, Long:
		bits := 32
		if t == Long {
			bits = 64
		}
		n, err := strconv.ParseInt(trimmed, 10, bits)
		if err != nil {
			return invalid("Not a number of type " + string(t))
		}
		if n < least {
			text = strconv.FormatInt(n, 10) // a number by now, in Kafka as well
			return invalid(fmt.Sprintf("Value must be at least %d", least))
		}
		return parsed{number: n, text: strconv.FormatInt(n, 10)}, nil
	case Boolean:
		switch strings.ToLower(trimmed) {
		case "true":
			return parsed{number: 1, text: "true"}, nil
		case "false":
			return parsed{text: "false"}, nil
		}
		return invalid("Expected value to be either true or false")
	case List:
		list := split(trimmed)
		for _, v := range list {
			if v == "" {
				return parsed{}, refuse("Configuration '%s' values must not be empty.", name)
			}
		}
		return parsed{list: list, text: strings.Join(list, ",")}, nil
	}
	return parsed{text: trimmed}, nil
}

// split takes a list apart at its commas, without the blanks around them; the empty text is the empty list.
func split(text string) []string {
	if trim(text) == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = trim(parts[i])
	}
	return parts
}
