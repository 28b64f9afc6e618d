package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
)

// Encoder is a Model with layers that attend to a source: an encoder-decoder. Its Blueprint's Layout says so (kv.Spec.Source); the layers reach the
// states with kv.Pass.AttendSource.
type Encoder interface {
	Model
	// Encode computes the states of a request's media (kv.NewSource): before the row's first forward, and again where the row was put
	// back, failed or goes on after a restart. Rows of the same media share what it gives, so nothing else may enter into it.
	Encode(s *mlx.Scope, media []plugin.Media) (*kv.Source, error)
}

// source is what a request attends to beside its tokens.
type source struct {
	media  []plugin.Media
	digest string // of all that Encode is given
}

// checkSource reads a request's media: a model attends to a source in every request, or in none.
func (e *Engine) checkSource(media []plugin.Media) (*source, error) {
	_, encodes := e.model.(Encoder)
	switch {
	case !kv.HasSource(e.layout.Caches) || !encodes:
		if len(media) > 0 {
			return nil, unhonoured("media", "the model attends to nothing but tokens").WithNext("leave the media out")
		}
		return nil, nil
	case len(media) == 0:
		return nil, invalid("media", "the model attends to a source, and the request has none")
	}
	h := sha256.New()
	for _, m := range media {
		var head []byte
		for _, n := range []int{len(m.Type), m.Width, m.Height, m.Position, len(m.Data)} {
			head = binary.LittleEndian.AppendUint64(head, uint64(n))
		}
		h.Write(append(head, m.Type...))
		h.Write(m.Data)
	}
	return &source{media, fmt.Sprintf("%x", h.Sum(nil))}, nil
}

// refuseSource is for requests that carry no media.
func (e *Engine) refuseSource(what string) error {
	if kv.HasSource(e.layout.Caches) {
		return unhonoured(what, "the model attends to a source, which such a request has not")
	}
	return nil
}

// attach gives a row's cache its source: that of another row with the same one, or its own.
func (e *Engine) attach(s *mlx.Scope, r *row, c *kv.Cache) error {
	if r.source == nil {
		return nil
	}
	for digest, held := range e.sources { // few: as many as rows
		if held.Freed() {
			delete(e.sources, digest)
		}
	}
	held := e.sources[r.source.digest]
	if held == nil {
		var err error
		if held, err = e.model.(Encoder).Encode(s, r.source.media); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		e.sources[r.source.digest] = held
	}
	c.Attach(held)
	return nil
}

// planSources is the line of what rows attend to beside their tokens; nil where no layer does.
func (d *draft) planSources() *cladev1.MemoryLine {
	bytes, layers, most := int64(0), 0, 0
	for _, p := range d.Layout.Caches {
		if p.Source > 0 {
			bytes, layers, most = bytes+p.SourceBytes(d.dtype), layers+1, max(most, p.Source)
		}
	}
	if layers == 0 {
		return nil
	}
	return &cladev1.MemoryLine{
		Name: "sources", Bytes: uint64(int64(d.rows) * bytes),
		Detail: fmt.Sprintf("keys and values of %d positions at most in %d layers for each of %d rows, whatever their tokens", most, layers, d.rows),
	}
}
