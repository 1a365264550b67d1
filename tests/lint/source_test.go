package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryPackageHasADoc: a newcomer reads doc.go first (what the package owns, what it never does, its file map). A
// command's comment may stand in main.go.
func TestEveryPackageHasADoc(t *testing.T) {
	docs := map[string]bool{}
	for _, f := range tree(t) {
		place := strings.HasSuffix(f.path, "/doc.go") || f.ast.Name.Name == "main" && strings.HasSuffix(f.path, "/main.go")
		docs[f.dir] = docs[f.dir] || place && f.ast.Doc != nil
	}
	for dir, ok := range docs {
		if !ok {
			t.Errorf("package %s has no doc.go with a package comment", dir)
		}
	}
}

// TestFileMapsAreTrue: each file that a doc.go names exists, and each file of the package is named where there is a map.
func TestFileMapsAreTrue(t *testing.T) {
	name := regexp.MustCompile(`\b[a-z0-9_]+\.go\b`)
	inDir := map[string][]string{}
	for _, f := range tree(t) {
		inDir[f.dir] = append(inDir[f.dir], f.path[strings.LastIndexByte(f.path, '/')+1:])
	}
	for _, f := range tree(t) {
		if !strings.HasSuffix(f.path, "/doc.go") {
			continue
		}
		_, fileMap, ok := strings.Cut(f.ast.Doc.Text(), "File map")
		if !ok {
			continue
		}
		named := name.FindAllString(fileMap, -1)
		for _, n := range named {
			if !slices.Contains(inDir[f.dir], n) {
				t.Errorf("%s: the file map names %s, which does not exist", f.path, n)
			}
		}
		for _, n := range inDir[f.dir] {
			if n != "doc.go" && !strings.HasSuffix(n, "_test.go") && !slices.Contains(named, n) {
				t.Errorf("%s: the file map lacks %s", f.path, n)
			}
		}
	}
}

// TestExportedNamesAreDocumented: what another package may use says what it does, its units and its errors.
func TestExportedNamesAreDocumented(t *testing.T) {
	ofInterface := interfaceMethods(tree(t))
	for _, f := range tree(t) {
		if f.test || f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && (!exportedReceiver(d) || selfEvident(d) || slices.Contains(ofInterface[f.dir], d.Name.Name)) {
					continue
				}
				if d.Name.IsExported() && d.Doc == nil {
					t.Errorf("%s: %s has no comment", at(d), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
							t.Errorf("%s: type %s has no comment", at(s), s.Name.Name)
						}
					case *ast.ValueSpec:
						if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil && !enumerated(d, s) {
							t.Errorf("%s: %s has no comment", at(s), s.Names[0].Name)
						}
					}
				}
			}
		}
	}
}

// interfaceMethods are the method names of each package's interfaces: what such a method does is said there.
func interfaceMethods(files []*file) map[string][]string {
	names := map[string][]string{}
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if i, ok := n.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					for _, name := range m.Names {
						names[f.dir] = append(names[f.dir], name.Name)
					}
				}
			}
			return true
		})
	}
	return names
}

// enumerated says that a constant is a value of an enumeration, whose type has the comment.
func enumerated(d *ast.GenDecl, s *ast.ValueSpec) bool {
	return d.Tok == token.CONST && (s.Type != nil || s.Values == nil)
}

func exportedReceiver(d *ast.FuncDecl) bool {
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// selfEvident are methods whose meaning the standard library fixes.
func selfEvident(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"Error", "String", "Unwrap", "Is", "Len", "Less", "Swap", "MarshalJSON", "UnmarshalJSON", "Write", "Read", "Close"}, d.Name.Name)
}

// TestLimitsSayWhy: every limit is a constant with a sentence that says what it protects or what happens there.
func TestLimitsSayWhy(t *testing.T) {
	limit := regexp.MustCompile(`(Max|Min|Limit)$|^(max|min)[A-Z]`)
	for _, f := range tree(t) {
		if f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			comments := g.Doc.Text()
			for _, s := range g.Specs {
				comments += s.(*ast.ValueSpec).Doc.Text()
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				name := v.Names[0].Name
				if limit.MatchString(name) && g.Doc == nil && v.Doc == nil && v.Comment == nil && !strings.Contains(comments, name) {
					t.Errorf("%s: the limit %s does not say why", at(v), name)
				}
			}
		}
	}
}

// TestEpochsAreNotComparedWithNumbers: -1 and -2 mean different things for member, topology and description epochs;
// their names (leaving, none, uncertain) don't get mixed up.
func TestEpochsAreNotComparedWithNumbers(t *testing.T) {
	comparison := []token.Token{token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ}
	for _, f := range tree(t) {
		if f.test || f.dir != "shard/streams" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			b, ok := n.(*ast.BinaryExpr)
			if ok && slices.Contains(comparison, b.Op) && (isEpoch(b.X) && isNegative(b.Y) || isEpoch(b.Y) && isNegative(b.X)) {
				t.Errorf("%s: an epoch is compared with a bare negative number", at(b))
			}
			return true
		})
	}
}

func isNegative(e ast.Expr) bool {
	u, ok := e.(*ast.UnaryExpr)
	if !ok || u.Op != token.SUB {
		return false
	}
	_, ok = u.X.(*ast.BasicLit)
	return ok
}

func isEpoch(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.Contains(strings.ToLower(e.Name), "epoch")
	case *ast.SelectorExpr:
		return strings.Contains(strings.ToLower(e.Sel.Name), "epoch")
	}
	return false
}

// TestSkipsAndSleepsDefendThemselves: a skipped test that doesn't say why is forgotten, and a sleep is either too
// short on a busy machine or too long on every other.
func TestSkipsAndSleepsDefendThemselves(t *testing.T) {
	for _, f := range tree(t) {
		if !f.test && f.dir != "internal/kafkatest" {
			continue
		}
		lines := strings.Split(f.text, "\n")
		bubbles := slices.ContainsFunc(f.ast.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, _ := sel.X.(*ast.Ident)
			switch {
			case sel.Sel.Name == "SkipNow" || sel.Sel.Name == "Skip" && len(call.Args) == 0 && x != nil && (x.Name == "t" || x.Name == "tb" || x.Name == "b"):
				t.Errorf("%s: a test is skipped without a message", at(call))
			case sel.Sel.Name == "Sleep" && x != nil && x.Name == "time" && !bubbles: // in a bubble time is virtual
				line := fset.Position(call.Pos()).Line // counted from 1
				above := ""
				if line >= 2 {
					above = strings.TrimSpace(lines[line-2])
				}
				if !strings.Contains(lines[line-1], "//") && !strings.HasPrefix(above, "//") {
					t.Errorf("%s: a sleep without a comment that defends it", at(call))
				}
			}
			return true
		})
	}
}

// linesMax is where a file surely holds two ideas.
const linesMax = 600

// TestFilesHoldOneIdea bounds the length of source files, tests included.
func TestFilesHoldOneIdea(t *testing.T) {
	for _, f := range tree(t) {
		if n := strings.Count(f.text, "\n"); n > linesMax && !ast.IsGenerated(f.ast) {
			t.Errorf("%s has %d lines, more than %d: which two ideas live in it?", f.path, n, linesMax)
		}
	}
}

// TestNothingIsLeftForLater: what is missing stands in docs/gaps.md, where users see it.
func TestNothingIsLeftForLater(t *testing.T) {
	later := regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	for _, f := range tree(t) {
		for _, g := range f.ast.Comments {
			if later.MatchString(g.Text()) {
				t.Errorf("%s: %q", at(g), later.FindString(g.Text()))
			}
		}
	}
}
