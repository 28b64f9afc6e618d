package enginetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights"
)

// Draft is a head that drafts for a Subject.
type Draft struct {
	// Kind is the contract's; empty: nothing drafts.
	Kind string
	// Path is the head's checkpoint; empty: the subject's own.
	Path string
	// Depth is the most tokens drafted at once; Always as engine.Speculation's.
	Depth  int
	Always bool
}

// Head reads the subject's head from headers.
func (s Subject) Head(t testing.TB) (engine.Head, error) {
	t.Helper()
	target := s.artifact(t, s.Path)
	head := target
	if s.Draft.Path != "" {
		head = s.artifact(t, s.Draft.Path)
	}
	_, parsed := Parse(t, s.Manifest, target)
	read := s.Graph.Heads[s.Draft.Kind]
	require.NotNil(t, read, s.Draft.Kind)
	return read(target, head, parsed)
}

func (s Subject) artifact(t testing.TB, path string) *artifact.Artifact {
	t.Helper()
	a, err := artifact.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

// speculation opens the subject's head over its open model.
func (s Subject) speculation(t testing.TB, worker *mlx.Worker, model engine.Model) engine.Speculation {
	t.Helper()
	if s.Draft.Kind == "" {
		return s.Config.Speculation
	}
	out := engine.Speculation{Depth: s.Draft.Depth, Always: s.Draft.Always}
	out.Drafter = s.Drafter(t, worker, model)
	return out
}

// Drafter opens the subject's head over a model, which it shares. The caller closes it.
func (s Subject) Drafter(t testing.TB, worker *mlx.Worker, model engine.Model) (out engine.Drafter) {
	t.Helper()
	head, err := s.Head(t)
	require.NoError(t, err)
	require.NoError(t, worker.Do(context.Background(), func(scope *mlx.Scope) error {
		tensors, err := head.Weights.Load(context.Background(), scope, s.Target, func(weights.Progress) {})
		if err != nil {
			return err
		}
		out = head.Build(scope, tensors, s.Target.DType, model)
		return scope.Err()
	}))
	return out
}
