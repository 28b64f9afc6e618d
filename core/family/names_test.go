package family

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Families are data: no code of the host, and none that both sides share, names a family, a graph or a model type.
func TestNoCodeNamesAFamily(t *testing.T) {
	l, _ := firstParty(t)
	names := map[string]bool{}
	for _, e := range l.Families() {
		for _, n := range append([]string{e.Record.Graph, e.Record.Label, e.Record.Profile}, e.Record.ModelTypes...) {
			names[strings.ToLower(n)] = true
		}
		for from, to := range e.Record.Remaps {
			names[from], names[to] = true, true
		}
	}
	files := 0
	for _, root := range []string{"..", "../../sdk/artifact", "../../sdk/family", "../../sdk/contract", "../../sdk/plugin"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && (d.Name() == "testdata" || d.Name() == "e2e") {
				return firstOf(err, fs.SkipDir)
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			files++
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					require.NoError(t, err)
					require.False(t, names[strings.ToLower(text)], "%s names %q", path, text)
				}
				return true
			})
			return nil
		})
		require.NoError(t, err)
	}
	require.Greater(t, files, 100)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
