package loader

import (
	"context"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// embedOption is declared by a plugin that takes embeddings as they are or of length 1.
const embedOption = "normalize"

// Embed gives the embedding of every input: of a text, behind the instruction, with what the family ends texts with. Inputs run
// together as far as the model has rows.
func (m *Model) Embed(ctx context.Context, q generate.EmbedRequest) (generate.Embeddings, error) {
	if err := m.decision.Embeds(); err != nil {
		return generate.Embeddings{}, err
	}
	e := m.decision.Family.Record.Embedding
	if err := checkEmbed(e, q); err != nil {
		return generate.Embeddings{}, err
	}
	adaptersDone, err := m.chooseToEmbed(ctx, &q)
	if err != nil {
		return generate.Embeddings{}, err
	}
	defer adaptersDone()
	inputs := make([][]int32, len(q.Inputs))
	out := generate.Embeddings{Vectors: make([][]float32, len(inputs))}
	for i, in := range q.Inputs {
		ids, err := m.embedIDs(e, in, q.Instruction)
		if err != nil {
			return generate.Embeddings{}, err
		}
		inputs[i] = ids
		out.Tokens += len(ids)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, int(m.Planned().Composition.Proto.GetRows())))
	for i, ids := range inputs {
		g.Go(func() (err error) {
			if out.Vectors[i], err = m.embed(ctx, ids, q.Adapter); err == nil {
				out.Vectors[i], err = cut(out.Vectors[i], q.Dimensions)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return generate.Embeddings{}, err
	}
	return out, nil
}

// chooseToEmbed holds the request's choice of adapters to what the model has. The result ends their use.
func (m *Model) chooseToEmbed(ctx context.Context, q *generate.EmbedRequest) (func(), error) {
	if q.Adapter == nil {
		return func() {}, nil
	}
	if _, err := m.alive(ctx); err != nil { // its options decide what may be asked
		return nil, err
	}
	if err := m.canAdapt(); err != nil {
		if *q.Adapter == contract.NoAdapter {
			q.Adapter, err = nil, nil
		}
		return func() {}, err
	}
	return m.useAdapters(q.Adapter)
}

// Embeds is nil when the family gives embeddings; else it names families that do.
func (d *Decision) Embeds() error {
	if d.Family.Record.Embedding != nil {
		return nil
	}
	var able []string
	for _, f := range d.host.Families.Families() {
		if f.Record.Embedding != nil && f.Record.Status == family.Available {
			able = append(able, f.Record.Graph)
		}
	}
	return contract.Errorf(contract.UnsupportedOption, d.Model.ID, "its graph %s gives no embeddings", d.Family.Record.Graph).
		WithNext("use a model of %s", strings.Join(able, ", "))
}

func checkEmbed(e *family.Embedding, q generate.EmbedRequest) error {
	switch {
	case len(q.Inputs) == 0:
		return contract.Errorf(contract.InvalidArgument, "input", "there is nothing to embed")
	case q.Instruction != "" && e.Instruction == "":
		return contract.Errorf(contract.UnsupportedOption, "instruction", "the family has no form for one").WithNext("put it into the text")
	case q.Dimensions != 0 && e.MinDimensions == 0:
		return contract.Errorf(contract.UnsupportedOption, "dimensions", "the family's embeddings cannot be cut").WithNext("leave it out")
	case q.Dimensions != 0 && q.Dimensions < e.MinDimensions:
		return contract.Errorf(contract.InvalidArgument, "dimensions", "%d is less than the %d that the family's embeddings may be cut to", q.Dimensions, e.MinDimensions)
	}
	return nil
}

// embedIDs is a text's ids without special tokens, and the family's last one; ids are taken as they are.
func (m *Model) embedIDs(e *family.Embedding, in generate.EmbedInput, instruction string) ([]int32, error) {
	ids := in.IDs
	if ids == nil {
		text := in.Text
		if instruction != "" {
			text = strings.NewReplacer("{instruction}", instruction, "{text}", text).Replace(e.Instruction)
		}
		encoded, err := m.text.encode(text, false)
		if err != nil {
			return nil, err
		}
		end, ok := m.text.tokenizer.ID(e.Terminator)
		if !ok {
			return nil, contract.Errorf(contract.ArtifactCorrupt, m.decision.Model.ID, "the tokenizer has no token %s, which ends a text that is embedded", e.Terminator)
		}
		ids = append(slices.Clone(encoded), end)
	} else if instruction != "" {
		return nil, contract.Errorf(contract.InvalidArgument, "instruction", "is put before texts, not before token ids")
	}
	limit := int(m.Facts().GetContextLength())
	switch {
	case len(ids) == 0:
		return nil, contract.Errorf(contract.InvalidArgument, "input", "has no tokens")
	case len(ids) > limit:
		return nil, contract.Errorf(contract.ContextTooLong, "input", "has %d tokens, the context is %d", len(ids), limit).
			WithNext("embed it in parts, or open the model with a larger --context")
	}
	return ids, nil
}

// embed runs one input. A process that dies meanwhile is followed by another, once: the input starts again in it.
func (m *Model) embed(ctx context.Context, ids []int32, adapter *string) ([]float32, error) {
	release, err := m.admitRequest(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	for again := true; ; again = false {
		p, err := m.alive(ctx)
		if err != nil {
			return nil, err
		}
		start := &cladev1.EmbedStart{Adapter: adapter}
		if m.honours(embedOption) {
			start.Normalize = new(true)
		}
		r, err := p.process.Embed(ctx, start, ids)
		if err == nil {
			m.breaker.Worked()
			return r.GetValues(), nil
		}
		if !again || contract.KindOf(err) != contract.PluginCrashed {
			return nil, m.blame(ctx, err)
		}
	}
}

// cut is the first n values, of length 1 again; 0 is all.
func cut(v []float32, n int) ([]float32, error) {
	switch {
	case n == 0:
		n = len(v)
	case n > len(v):
		return nil, contract.Errorf(contract.InvalidArgument, "dimensions", "%d is more than the %d that there are", n, len(v))
	}
	v = v[:n]
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum > 0 {
		for i, x := range v {
			v[i] = float32(float64(x) / math.Sqrt(sum))
		}
	}
	return v, nil
}
