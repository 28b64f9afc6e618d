package cli

import (
	"io"
	"strings"
	"text/tabwriter"
)

// table aligns columns for people.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer) *table {
	return &table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = plain(c)
	}
	// Written to the buffer; flush reports what the stream says.
	_, _ = io.WriteString(t.w, strings.Join(cells, "\t")+"\n")
}

func (t *table) flush() error { return t.w.Flush() }
