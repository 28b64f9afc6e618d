package cli

import (
	"bytes"
	"context"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/serve/admin"
)

// textless generates ids that nothing can spell.
type textless struct{ admin.Model }

func (textless) Generate(_ context.Context, _ generate.Prompt, _ generate.Settings, emit func(generate.Delta) error) (generate.Result, error) {
	ids := []int32{5, 0, 212}
	return generate.Result{IDs: ids, NoText: "tokenizer: no file of the model holds one"}, emit(generate.Delta{IDs: ids})
}

func TestAModelWithoutATokenizerAnswersWithTokenIDs(t *testing.T) {
	var out, errs bytes.Buffer
	a := &app{Streams: Streams{Out: &out, Err: &errs}}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	require.NoError(t, a.generateOnce(cmd, textless{}, generate.Prompt{IDs: []int32{1}}, generate.Settings{}, false))
	require.Equal(t, "5 0 212\n", out.String())
	require.Contains(t, errs.String(), "token ids, as there is no text: tokenizer: no file of the model holds one")
}
