package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/sdk/contract"
)

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench MODEL", Short: "Measure prefill and decode speed through host and plugin", Args: cobra.ExactArgs(1),
		Long: "Runs a prompt of random tokens and decodes greedily behind it, once unmeasured and then --repeats times. prefill is the\n" +
			"time to the first token; decode is the tokens after it by the time after it, both as the host sees them.",
	}
	model := a.addModelFlags(cmd)
	prefill := cmd.Flags().Int("prefill", 512, "tokens of the prompt")
	decode := cmd.Flags().Int("decode", 128, "tokens to decode")
	repeats := cmd.Flags().Int("repeats", 5, "measured runs")
	seed := cmd.Flags().Uint64("seed", 1, "seed of the prompt's tokens")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *prefill < 1 || *decode < 2 || *repeats < 1 {
			return contract.Errorf(contract.InvalidArgument, "bench", "want --prefill of at least 1, --decode of at least 2, --repeats of at least 1")
		}
		return a.withModel(cmd.Context(), model, args[0], func(m *loader.Model) error {
			b := bench{prefill: *prefill, decode: *decode, rng: rand.New(rand.NewPCG(*seed, 0))}
			r, err := b.measure(cmd.Context(), m, *repeats)
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(r)
			}
			t := newTable(a.Out)
			t.row("model", r.Model)
			t.row("device", fmt.Sprintf("%s, %s, %d threads", r.Provenance.Device, r.Provenance.DType, r.Provenance.Threads))
			t.row(fmt.Sprintf("prefill %d", r.Prefill.Tokens), fmt.Sprintf("%.1f tok/s (%.1f to %.1f)", r.Prefill.Median, r.Prefill.Low, r.Prefill.High))
			t.row(fmt.Sprintf("decode %d", r.Decode.Tokens), fmt.Sprintf("%.1f tok/s (%.1f to %.1f)", r.Decode.Median, r.Decode.Low, r.Decode.High))
			return t.flush()
		})
	}
	return cmd
}

type bench struct {
	prefill, decode int
	rng             *rand.Rand
}

// benchResult is the JSON of `bench`. Rates are tokens a second.
type benchResult struct {
	Model      string              `json:"model"`
	Prefill    rates               `json:"prefill"`
	Decode     rates               `json:"decode"`
	Memory     benchMemory         `json:"memory"`
	Provenance generate.Provenance `json:"provenance"`
}

type rates struct {
	Tokens  int       `json:"tokens"`
	Median  float64   `json:"median_tok_s"`
	Low     float64   `json:"min_tok_s"`
	High    float64   `json:"max_tok_s"`
	Repeats []float64 `json:"repeats_tok_s"`
}

type benchMemory struct {
	ActiveBytes uint64 `json:"active_bytes"`
	PeakBytes   uint64 `json:"peak_bytes"`
	RSSBytes    uint64 `json:"rss_bytes"`
}

func (r *rates) settle() {
	sorted := slices.Sorted(slices.Values(r.Repeats))
	n := len(sorted)
	r.Low, r.High, r.Median = sorted[0], sorted[n-1], (sorted[(n-1)/2]+sorted[n/2])/2
}

func (b *bench) measure(ctx context.Context, m *loader.Model, repeats int) (*benchResult, error) {
	r := &benchResult{Model: m.Decision().Model.ID, Prefill: rates{Tokens: b.prefill}, Decode: rates{Tokens: b.decode - 1}}
	for i := range repeats + 1 {
		prefill, decode, result, err := b.once(ctx, m)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			continue // pages and pools are warm from here on
		}
		r.Prefill.Repeats = append(r.Prefill.Repeats, float64(b.prefill)/prefill.Seconds())
		r.Decode.Repeats = append(r.Decode.Repeats, float64(b.decode-1)/decode.Seconds())
		r.Provenance = result.Provenance
	}
	r.Prefill.settle()
	r.Decode.settle()
	stats, err := m.Stats(ctx)
	if err != nil {
		return nil, err
	}
	mem := stats.GetMemory()
	r.Memory = benchMemory{mem.GetActiveBytes(), mem.GetPeakBytes(), mem.GetRssBytes()}
	return r, nil
}

// once runs one prompt of fresh random tokens, so that no cache helps.
func (b *bench) once(ctx context.Context, m *loader.Model) (prefill, decode time.Duration, r generate.Result, err error) {
	ids := make([]int32, b.prefill)
	for i := range ids {
		ids[i] = b.rng.Int32N(int32(m.Facts().GetVocabSize()))
	}
	s := generate.Settings{MaxTokens: new(uint32(b.decode)), Temperature: new(0.0), IgnoreEOS: new(true)}
	start := time.Now()
	var first time.Time
	r, err = m.Generate(ctx, generate.Prompt{IDs: ids}, s, func(d generate.Delta) error {
		if first.IsZero() && len(d.IDs) > 0 {
			first = time.Now()
		}
		return nil
	})
	if err != nil {
		return 0, 0, r, err
	}
	if len(r.IDs) != b.decode {
		return 0, 0, r, contract.Errorf(contract.Internal, "bench", "the plugin generated %d of %d tokens", len(r.IDs), b.decode)
	}
	return first.Sub(start), time.Since(first), r, nil
}
