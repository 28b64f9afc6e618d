package cli

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// defaultRow is the length of a perplexity row in tokens, as mlx-lm's.
const defaultRow = 512

// maxLogits bounds the logits held for one file.
const maxLogits = 8 << 30

func (a *app) scoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "score MODEL (--ids FILE --logits OUT.safetensors | --text FILE)",
		Short: "Write the logits of token ids, or measure perplexity of a text",
		Long: "--ids and --logits write a tensor \"logits\", float32 [T, vocab], one row a position. --text measures perplexity over\n" +
			"rows of --sequence-length tokens that do not overlap; each row's first token is given, the rest is predicted. The\n" +
			"error is the standard error of the mean loss carried through exp.",
		Args: cobra.ExactArgs(1),
	}
	model := a.addModelFlags(cmd)
	idsFile := cmd.Flags().String("ids", "", "file of token ids; - reads stdin")
	logits := cmd.Flags().String("logits", "", "file to write")
	text := cmd.Flags().String("text", "", "text file; - reads stdin")
	row := cmd.Flags().Int("sequence-length", defaultRow, "tokens of a row")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		given := cmd.Flags().Changed
		switch {
		case given("ids") == given("text"):
			return contract.Errorf(contract.InvalidArgument, "score", "give either --ids with --logits, or --text")
		case given("ids") != given("logits"):
			return contract.Errorf(contract.InvalidArgument, "score", "--ids and --logits go together")
		case given("sequence-length") && !given("text"):
			return contract.Errorf(contract.InvalidArgument, "--sequence-length", "needs --text")
		case *row < 2:
			return contract.Errorf(contract.InvalidArgument, "--sequence-length", "is %d; want at least 2", *row)
		}
		if given("ids") {
			ids, err := a.readIDs(*idsFile)
			if err != nil {
				return err
			}
			if err := checkOutput(*logits); err != nil {
				return err
			}
			return a.withModel(cmd.Context(), model, args[0], func(m *loader.Model) error {
				return a.writeLogits(cmd.Context(), m, ids, *logits, *asJSON)
			})
		}
		content, err := a.readText(*text)
		if err != nil {
			return err
		}
		return a.withModel(cmd.Context(), model, args[0], func(m *loader.Model) error {
			return a.perplexity(cmd.Context(), m, content, *row, *asJSON)
		})
	}
	return cmd
}

// writeLogits scores ids and writes the tensor.
func (a *app) writeLogits(ctx context.Context, m *loader.Model, ids []int32, path string, asJSON bool) error {
	vocab := int(m.Facts().GetVocabSize())
	if size := uint64(len(ids)) * uint64(vocab) * 4; size > maxLogits {
		return contract.Errorf(contract.InvalidArgument, "--ids", "%d rows of %d logits are more than %d GiB; score fewer at once", len(ids), vocab, maxLogits>>30)
	}
	data := make([]byte, len(ids)*vocab*4)
	filled := make([]int, len(ids))
	usage, err := m.Score(ctx, ids, cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS, func(f *cladev1.ScoreFrame) error {
		at, n := int(f.GetPosition()), len(f.GetValues())
		if at >= len(ids) || int(f.GetOffset()) != filled[at] || filled[at]+n > vocab {
			return contract.Errorf(contract.Internal, "score", "the plugin sent a frame out of place: position %d, offset %d, %d values", at, f.GetOffset(), n)
		}
		for i, v := range f.GetValues() {
			binary.LittleEndian.PutUint32(data[(at*vocab+filled[at]+i)*4:], math.Float32bits(v))
		}
		filled[at] += n
		return nil
	})
	if err != nil {
		return err
	}
	for at, n := range filled {
		if n != vocab {
			return contract.Errorf(contract.Internal, "score", "the plugin sent %d of %d logits of position %d", n, vocab, at)
		}
	}
	err = artifact.WriteSafetensors(path, []artifact.NewTensor{{
		Name: "logits", DType: artifact.F32, Shape: []int64{int64(len(ids)), int64(vocab)}, Data: data,
	}}, map[string]string{"dtype": m.Facts().GetDtype(), "device": m.Facts().GetDevice(), "clade": Version})
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(map[string]any{"tokens": len(ids), "vocab_size": vocab, "logits": path, "prefill_ns": usage.GetPrefillNs()})
	}
	_, err = fmt.Fprintf(a.Err, "%s: logits float32 [%d, %d]\n", path, len(ids), vocab)
	return err
}

// losses accumulates negative log likelihoods, in nats.
type losses struct {
	n          int
	sum, sumSq float64
}

func (l *losses) add(nll float64) {
	l.n++
	l.sum += nll
	l.sumSq += nll * nll
}

// perplexity is exp of the mean loss, and its standard error by the delta method: ppl * stderr(mean).
func (l *losses) perplexity() (ppl, stderr, mean float64) {
	n := float64(l.n)
	mean = l.sum / n
	ppl = math.Exp(mean)
	if l.n < 2 {
		return ppl, math.NaN(), mean
	}
	variance := max(l.sumSq-n*mean*mean, 0) / (n - 1)
	return ppl, ppl * math.Sqrt(variance/n), mean
}

func (a *app) perplexity(ctx context.Context, m *loader.Model, text string, row int, asJSON bool) error {
	ids, err := m.Encode(text, true)
	if err != nil {
		return err
	}
	row = min(row, int(m.Facts().GetContextLength()))
	var l losses
	rows := 0
	for start := 0; start+1 < len(ids); start += row {
		part := ids[start:min(start+row, len(ids))]
		if len(part) < 2 {
			break
		}
		rows++
		_, err := m.Score(ctx, part, cladev1.ScoreOutput_SCORE_OUTPUT_LOGPROBS, func(f *cladev1.ScoreFrame) error {
			for _, v := range f.GetValues() {
				l.add(-float64(v))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if l.n == 0 {
		return contract.Errorf(contract.InvalidArgument, "--text", "has %d tokens; perplexity needs at least 2", len(ids))
	}
	ppl, stderr, mean := l.perplexity()
	if asJSON {
		out := map[string]any{"perplexity": ppl, "loss": mean, "tokens": l.n, "rows": rows, "sequence_length": row}
		if !math.IsNaN(stderr) {
			out["stderr"] = stderr
		}
		return a.printJSON(out)
	}
	_, err = fmt.Fprintf(a.Out, "perplexity %.4f +- %.4f (%d tokens in %d rows)\n", ppl, stderr, l.n, rows)
	return err
}
