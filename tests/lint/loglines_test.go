package lint

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// linesElsewhere are packages whose log lines no operator of streamkeeper sees.
var linesElsewhere = map[string]string{
	"client":             "a library: the applications that use it log",
	"plugin/conformance": "tests for authors of plugins",
}

// linesUnexplained are the messages that docs/operations.md need not have, with the reason.
var linesUnexplained = map[string]string{
	"pebble: %s":    "words of the store's library; what follows from them has lines of its own",
	"cleanup cycle": "informs, or is for debugging; it is logged with a level that is computed",
}

// logLine is a message that is logged as a warning or an error.
type logLine struct{ text, at string }

// TestWarningsAreExplained: whoever finds a warning or an error in the log finds it in docs/operations.md, with what to do.
func TestWarningsAreExplained(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(doc), "\n## What the log lines mean\n")
	if !ok {
		t.Fatal("docs/operations.md has no section on log lines")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| ((?:`[^`]+`[^|]*?)+) \\| [^|]{10,} \\|$").FindAllStringSubmatch(section, -1)
	var explained []string
	for _, row := range rows {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			explained = append(explained, m[1])
		}
	}
	lines := warnings(tree(t))
	if len(lines) < 60 {
		t.Fatalf("only %d warnings found: the search has lost its way", len(lines))
	}
	for _, l := range lines {
		if linesUnexplained[l.text] == "" && !explains(explained, l.text) {
			t.Errorf("%s: %q is not explained in docs/operations.md, \"What the log lines mean\"", l.at, l.text)
		}
	}
	for text := range linesUnexplained {
		found := false
		for _, l := range lines {
			found = found || l.text == text
		}
		if !found {
			t.Errorf("nothing logs %q any more", text)
		}
	}
	if explains(explained, "a message that nobody has written down") {
		t.Error("anything counts as explained")
	}
}

// explains says that one of the texts of the document stands for a message: it is in it, but for what the message fills in.
func explains(explained []string, message string) bool {
	for _, e := range explained {
		at := 0
		for _, part := range strings.Split(e, "…") {
			i := strings.Index(message[at:], strings.TrimSpace(part))
			if i < 0 {
				at = -1
				break
			}
			at += i + len(strings.TrimSpace(part))
		}
		if at >= 0 && len(e) >= min(20, len(message)) {
			return true
		}
	}
	return false
}

// warnings are the messages of the calls of Warn and Error (slog), of the gateway's warn, and of Log where the level is, or may be, one of the two.
func warnings(files []*file) (lines []logLine) {
	for _, f := range files {
		if f.test || linesElsewhere[f.dir] != "" || strings.HasPrefix(f.dir, "tests/") || f.dir == "internal/kafkatest" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			message := -1
			switch fun.Sel.Name {
			case "Warn", "Error":
				message = 0
			case "WarnContext", "ErrorContext", "warn": // warn(kind, message, …) of the gateway
				message = 1
			case "Log":
				message = 2
			case "say": // say(level, message, …) of the shards' tally
				if level, ok := call.Args[0].(*ast.SelectorExpr); ok && level.Sel.Name != "LevelInfo" {
					message = 1
				}
			}
			if message < 0 || len(call.Args) <= message {
				return true
			}
			if text := messageOf(call.Args[message]); text != "" {
				lines = append(lines, logLine{text, at(call)})
			}
			return true
		})
	}
	return lines
}

// messageOf is the text of a message, with %s for what is filled in; "" where nothing of it is constant.
func messageOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return text
		}
	case *ast.BinaryExpr:
		left, right := messageOf(e.X), messageOf(e.Y)
		if left == "" && right == "" {
			return ""
		}
		return or(left, "%s") + or(right, "%s")
	case *ast.CallExpr:
		if fun, ok := e.Fun.(*ast.SelectorExpr); ok && fun.Sel.Name == "Sprintf" && len(e.Args) > 0 {
			return messageOf(e.Args[0])
		}
	}
	return ""
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
