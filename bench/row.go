package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"text/tabwriter"
)

// Row is one figure of bench/out.json. PeerValue and Ratio are null where there is nothing to compare with.
type Row struct {
	Name      string   `json:"name"`
	Value     float64  `json:"value"`
	Unit      string   `json:"unit"`
	Peer      string   `json:"peer"`
	PeerValue *float64 `json:"peer_value"`
	Ratio     *float64 `json:"ratio"`
	// Min and max over the repeats; those of the ratio are over pairs that ran one after the other.
	Spread      []float64 `json:"spread,omitempty"`
	PeerSpread  []float64 `json:"peer_spread,omitempty"`
	RatioSpread []float64 `json:"ratio_spread,omitempty"`
	Repeats     int       `json:"repeats,omitempty"`
	Goal        string    `json:"goal,omitempty"`
	Note        string    `json:"note,omitempty"`
}

func median(v []float64) float64 {
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

func spread(v []float64) []float64 {
	lo, hi := v[0], v[0]
	for _, x := range v {
		lo, hi = min(lo, x), max(hi, x)
	}
	return []float64{lo, hi}
}

// single is a figure with no peer.
func single(name, unit string, values []float64, goal, note string) Row {
	return Row{Name: name, Value: median(values), Unit: unit, Spread: spread(values), Repeats: len(values), Goal: goal, Note: note}
}

// paired compares repeats that were taken in turns: values[i] and peers[i] ran one after the other, so that what the machine
// did meanwhile touches both.
func paired(name, unit, peer string, values, peers []float64, goal string) Row {
	ratios := make([]float64, len(values))
	for i := range values {
		ratios[i] = values[i] / peers[i]
	}
	pv, ratio := median(peers), median(ratios)
	return Row{
		Name: name, Value: median(values), Unit: unit, Spread: spread(values), Peer: peer, PeerValue: &pv, PeerSpread: spread(peers),
		Ratio: &ratio, RatioSpread: spread(ratios), Repeats: len(values), Goal: goal,
	}
}

func write(path string, rows []Row) error {
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func table(out io.Writer, rows []Row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "figure\tvalue\tspread\tpeer\tratio\tgoal")
	for _, r := range rows {
		peer, ratio := "", ""
		if r.PeerValue != nil {
			peer = fmt.Sprintf("%s %s [%s]", r.Peer, number(*r.PeerValue), numbers(r.PeerSpread))
			ratio = fmt.Sprintf("%s [%s]", number(*r.Ratio), numbers(r.RatioSpread))
		}
		fmt.Fprintf(w, "%s\t%s %s\t[%s]\t%s\t%s\t%s\n", r.Name, number(r.Value), r.Unit, numbers(r.Spread), peer, ratio, r.Goal)
	}
	for _, r := range rows {
		if r.Note != "" {
			fmt.Fprintf(w, "%s: %s\n", r.Name, r.Note)
		}
	}
	return w.Flush()
}

func number(v float64) string { return fmt.Sprintf("%.4g", v) }

func numbers(v []float64) string {
	parts := make([]string, len(v))
	for i, x := range v {
		parts[i] = number(x)
	}
	return strings.Join(parts, " ")
}
