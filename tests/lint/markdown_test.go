package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	mdHeading = regexp.MustCompile(`(?m)^#{1,6}\s+(.+?)\s*#*$`)
	mdFence   = regexp.MustCompile("(?s)(?:^|\n)```.*?\n```")
	mdCode    = regexp.MustCompile("`[^`\n]*`")
)

// TestMarkdownLinksResolve: a document that points nowhere is worse than one that doesn't point.
func TestMarkdownLinksResolve(t *testing.T) {
	docs := map[string]string{}
	err := walk(func(path string) error {
		if !strings.HasSuffix(path, ".md") {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(root, path))
		docs[path] = mdFence.ReplaceAllString(string(b), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range docs {
		for _, m := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), filepath.FromSlash(target))
				if _, err := os.Stat(filepath.Join(root, to)); err != nil {
					t.Errorf("%s links to %s, which does not exist", path, m[1])
					continue
				}
			}
			if doc, isDoc := docs[to]; anchor != "" && isDoc && !hasHeading(doc, anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", path, m[1], to)
			}
		}
	}
}

// hasHeading compares with the anchors that code hosts make of headings.
func hasHeading(doc, anchor string) bool {
	for _, m := range mdHeading.FindAllStringSubmatch(doc, -1) {
		var b strings.Builder
		for _, r := range strings.ToLower(m[1]) {
			switch {
			case r == ' ':
				b.WriteByte('-')
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				b.WriteRune(r)
			}
		}
		if b.String() == anchor {
			return true
		}
	}
	return false
}
