package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

const module = "streamkeeper"

// file is one parsed Go file.
type file struct {
	path string // slash-separated, from the repository's root
	dir  string // the package's folder, "." for the root
	test bool
	ast  *ast.File
	text string
}

var fset = token.NewFileSet()

var loadTree = sync.OnceValues(func() ([]*file, error) {
	var files []*file
	err := walk(func(path string) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		dir := "."
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			dir = path[:i]
		}
		files = append(files, &file{path: path, dir: dir, test: strings.HasSuffix(path, "_test.go"), ast: parsed, text: string(text)})
		return nil
	})
	return files, err
})

// walk calls visit with each file of the repository, but for those that git ignores or that only tools read.
func walk(visit func(path string) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch {
			case rel == ".":
				return nil
			case rel == "data", rel == "bin", d.Name() == "testdata", d.Name() == "node_modules":
				return fs.SkipDir
			case strings.HasPrefix(d.Name(), ".") && d.Name() != ".ci" && d.Name() != ".github":
				return fs.SkipDir
			}
			return nil
		}
		if rel == module || strings.HasSuffix(rel, ".test") || strings.HasSuffix(rel, ".prof") { // what go build and go test leave
			return nil
		}
		return visit(rel)
	})
}

func tree(t *testing.T) []*file {
	t.Helper()
	files, err := loadTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d Go files found under %s: the walk has lost its way", len(files), root)
	}
	return files
}

// at is "path:line" of a node.
func at(n ast.Node) string {
	p := fset.Position(n.Pos())
	return filepath.ToSlash(p.Filename) + ":" + strconv.Itoa(p.Line)
}
