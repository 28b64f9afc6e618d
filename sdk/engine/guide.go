package engine

import (
	"sync"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/guidance"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/tokenizer"
)

// guide compiles the grammars of one open model. The model's tokenizer is read when the first grammar comes: most models never
// see one.
type guide struct {
	library *guidance.Library // nil: absent says why
	absent  error
	path    string // of the artifact
	width   int    // of the logits
	eos     []int32

	mu         sync.Mutex
	vocabulary *guidance.Vocabulary
}

// loadGuidance opens the runtime's libguidance. A runtime without one runs models all the same.
func loadGuidance(r *mlx.Runtime) (*guidance.Library, error) {
	path, ok := r.Library(guidance.LibraryName)
	if !ok {
		return nil, contract.Errorf(contract.UnsupportedOption, "constraint", "the runtime in %s has no %s, which computes what a grammar allows",
			r.Info().Dir, guidance.LibraryName).WithNext("run make setup, or install the runtime again")
	}
	return guidance.Open(path)
}

// constraint compiles the grammar of a request.
func (g *guide) constraint(c *cladev1.Constraint) (Constraint, error) {
	if g.library == nil {
		return nil, g.absent
	}
	grammar, err := guidance.Read(c)
	if err != nil {
		return nil, err
	}
	v, err := g.prepared()
	if err != nil {
		return nil, err
	}
	m, err := v.Start(grammar)
	if err != nil {
		return nil, err // not the nil matcher, which would be a Constraint
	}
	return m, nil
}

// prepared is the model's vocabulary, made at the first call that succeeds.
func (g *guide) prepared() (*guidance.Vocabulary, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.vocabulary != nil {
		return g.vocabulary, nil
	}
	a, err := artifact.Open(g.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = a.Close() }()
	t, err := tokenizer.FromArtifact(a)
	if err != nil {
		return nil, contract.Errorf(contract.UnsupportedOption, "constraint", "the model's tokens are not known: %w", err)
	}
	g.vocabulary, err = g.library.Vocabulary(guidance.ForTokenizer(t), g.width, g.eos)
	return g.vocabulary, err
}

// close frees the vocabulary, once no request is left.
func (g *guide) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.vocabulary == nil {
		return nil
	}
	return g.vocabulary.Close()
}
