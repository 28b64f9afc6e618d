package family

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	record "github.com/clademl/clade/sdk/family"
)

func corpus(t *testing.T) []Sample {
	t.Helper()
	samples, err := Corpus()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(samples), 40)
	return samples
}

func TestEverySampleGetsItsFamily(t *testing.T) {
	l, problems := firstParty(t)
	require.Empty(t, problems)
	seen := map[string]int{}
	for _, s := range corpus(t) {
		seen[s.Graph]++
		e, err := l.Match(s.Config)
		if s.Graph == "" {
			require.Equal(t, contract.UnsupportedModel, contract.KindOf(err), s.Name)
			continue
		}
		require.NoError(t, err, s.Name)
		require.Equal(t, s.Graph, e.Record.Graph, s.Name)
		_, err = e.Record.ParseConfig(s.Config, artifact.Config{})
		require.NoError(t, err, s.Name)
	}
	for _, e := range l.Families() {
		require.NotZero(t, seen[e.Record.Graph], "the corpus has no model of %s", e.Record.Graph)
	}
	require.GreaterOrEqual(t, seen[""], 20, "and models that no family takes")
}

func TestTargetedFamiliesAreDisjointOverTheCorpus(t *testing.T) {
	l, _ := firstParty(t)
	for _, s := range corpus(t) {
		var takers []string
		for _, e := range l.Families() {
			// Drafts are sorted out before any family is asked.
			if e.Record.Tier == record.Targeted && e.Record.Match(s.Config).OK && !strings.Contains(s.Name, "assistant") {
				takers = append(takers, e.Record.Graph)
			}
		}
		require.LessOrEqual(t, len(takers), 1, "%s: %v", s.Name, takers)
	}
}

func TestAPassedOverFamilySaysWhy(t *testing.T) {
	l, _ := firstParty(t)
	said := map[string][]string{}
	for _, s := range corpus(t) {
		if e, err := l.Match(s.Config); err == nil {
			said[s.Name] = l.Passed(s.Config, e)
		}
	}
	require.Equal(t, []string{"minicpm5 wants hidden_size 1536, this has 1537"}, said["minicpm5-1b-off-by-one"])
	require.Equal(t, []string{"minicpm5 wants tie_word_embeddings false, this has true"}, said["minicpm5-1b-tied"])
	require.Equal(t, []string{"minicpm5 wants num_hidden_layers 24, this has 25"}, said["minicpm5-1b-one-layer-more"])
	require.Equal(t, []string{"minicpm5 wants hidden_size 1536, this has 576; minicpm5 wants num_hidden_layers 24, this has 30; " +
		"minicpm5 wants num_attention_heads 16, this has 9, and 4 clauses more"}, said["smollm2-135m"])
	require.Empty(t, said["minicpm5-1b"])
	require.Empty(t, said["qwen3-8b"])
	require.Empty(t, said["mistral-7b-v0.3"], "another type is no near miss")
}

// thirdPartyTier is thirdParty with any clause and tier.
func thirdPartyTier(t *testing.T, plugin, graph, tier, clauses string) *record.Manifest {
	t.Helper()
	m, err := record.ParseManifest([]byte(`{schema: 1, name: ` + plugin + `, version: 1.0.0, contract: [1], families: [{graph: ` + graph +
		`, label: x, tier: ` + tier + `, status: available, model_types: [x], accepts: ` + clauses + `, config: {}, loaders: [safetensors], loop: autoregressive, ` +
		`fidelity: l3-measured, specialization: dedicated, profile: p, capabilities: [c-graph], fingerprint: config}]}`))
	require.NoError(t, err)
	return m
}

func TestATargetedRecordThatTakesAnothersModelIsDisabledAndNeverInstalled(t *testing.T) {
	embedded, err := Embedded()
	require.NoError(t, err)
	for name, c := range map[string]struct{ tier, clauses, reason string }{
		"takes qwen3": {"targeted", `[{path: model_type, op: eq, value: qwen3}]`, "it accepts qwen3-0.6b, which family qwen3 of plugin qwen has"},
		"takes one qwen3": {
			"targeted", `[{path: vocab_size, op: eq, value: 151669}]`, "it accepts qwen3-embedding-0.6b, which family qwen3 of plugin qwen has",
		},
		"takes everything":             {"targeted", `[{path: model_type, op: exists}]`, "it accepts gemma-4-12b-optiq, which family gemma4 of plugin gemma4 has"},
		"a narrower llama":             {"targeted", `[{path: model_type, op: eq, value: llama}, {path: hidden_size, op: eq, value: 576}]`, ""},
		"a type of its own":            {"targeted", `[{path: model_type, op: eq, value: mamba9}]`, ""},
		"unsupported so far":           {"targeted", `[{path: model_type, op: eq, value: mixtral}]`, ""},
		"generic over universal-dense": {"generic", `[{path: model_type, op: eq, value: llama}]`, "it accepts minicpm5-1b, which family universal-dense of plugin universal has"},
		"generic of the rest":          {"generic", `[{path: model_type, op: eq, value: gpt_oss}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := thirdPartyTier(t, "late", "example.org/late", c.tier, c.clauses)
			l, problems := New(append(embedded, Offer{m, FromInstalled}))
			_, there := l.ByGraph("example.org/late")
			err := CheckInstall(embedded, m)
			if c.reason == "" {
				require.Empty(t, problems)
				require.True(t, there)
				require.NoError(t, err)
				last := l.Families()[len(l.Families())-1]
				require.Equal(t, "universal-dense", last.Record.Graph, "the generic family of the house is asked last")
				return
			}
			require.Equal(t, []Problem{{Plugin: "late", Graph: "example.org/late", Reason: c.reason}}, problems)
			require.False(t, there)
			require.Equal(t, contract.PluginMismatch, contract.KindOf(err))
			require.Equal(t, 1, contract.KindOf(err).ExitCode())
			require.EqualError(t, err, "late: cannot be installed beside what is there: family example.org/late of plugin late is disabled: "+c.reason+
				"; remove the plugin that conflicts, or ask this one's author")
		})
	}
}

func TestOfTwoThirdPartiesTheLaterIsDisabled(t *testing.T) {
	clauses := `[{path: model_type, op: eq, value: mixtral}]`
	a, b := thirdPartyTier(t, "zzz", "example.org/a", "targeted", clauses), thirdPartyTier(t, "aaa", "example.org/b", "targeted", clauses)
	for _, offers := range [][]Offer{{{a, FromInstalled}, {b, FromInstalled}}, {{b, FromInstalled}, {a, FromInstalled}}} {
		l, problems := firstParty(t, offers...)
		require.Equal(t, []Problem{{Plugin: "aaa", Graph: "example.org/b", Reason: "it accepts mixtral-8x7b, which family example.org/a of plugin zzz has"}}, problems)
		_, ok := l.ByGraph("example.org/a")
		require.True(t, ok)
	}
	require.NoError(t, CheckInstall([]Offer{{a, FromInstalled}}, a), "a plugin may replace itself")
}

func TestProfilesAndImplementationsAreCollectedAndConflictsReported(t *testing.T) {
	const qwen = "hf:mlx-community/Qwen3.8-27B-OptiQ-4bit@b04599de95d7a9bfbd7f208d347c0f10d9432a42"
	profile := func(id, artifact, graph, loader string) string {
		return fmt.Sprintf("{id: %s, artifact: '%s', config: c, graph: %s, loader: %s, loop: autoregressive, fidelity: l3-measured, specialization: artifact}",
			id, artifact, graph, loader)
	}
	m, err := record.ParseManifest([]byte(`{schema: 1, name: more, version: 1.0.0, contract: [1], profiles: [` + strings.Join([]string{
		profile("mine", "hf:o/n@1", "qwen3", "safetensors"), profile("theirs", qwen, "qwen3.5", "safetensors"),
		profile("qwen3.8-27b-optiq-4bit", "hf:o/n@2", "qwen3.5", "safetensors"), profile("lost", "hf:o/n@3", "example.org/none", "safetensors"),
		profile("streamed", "hf:o/n@4", "qwen3", "colibri"),
	}, ", ") + `], implementations: [{id: fast, graph: qwen3, loader: safetensors, loop: autoregressive}, {id: stray, graph: example.org/none, loader: gguf, loop: diffusion}]}`))
	require.NoError(t, err)
	l, problems := firstParty(t, Offer{m, FromInstalled})
	require.Equal(t, []Problem{
		{Plugin: "more", What: "profile", Graph: "theirs", Reason: "plugin qwen claims " + qwen},
		{Plugin: "more", What: "profile", Graph: "qwen3.8-27b-optiq-4bit", Reason: "plugin qwen claims qwen3.8-27b-optiq-4bit"},
		{Plugin: "more", What: "profile", Graph: "lost", Reason: "no family has its graph example.org/none"},
		{Plugin: "more", What: "profile", Graph: "streamed", Reason: "loader colibri: qwen3 opens safetensors, gguf"},
		{Plugin: "more", What: "implementation", Graph: "stray", Reason: "no family has its graph example.org/none"},
	}, problems)
	var ids []string
	for _, p := range l.Profiles() {
		ids = append(ids, p.ID+" of "+p.Plugin)
	}
	require.Equal(t, []string{"glm5.2-colibri-int4-int8-mtp of glm52", "qwen3.8-27b-optiq-4bit of qwen", "mine of more"}, ids)
	impl, ok := l.Implementation("fast")
	require.True(t, ok)
	require.Equal(t, "more", impl.Plugin)
	require.Len(t, l.Implementations(), 2, "and universal's own")
	_, ok = l.Implementation("stray")
	require.False(t, ok)
	require.Equal(t, "profile theirs of plugin more is disabled: plugin qwen claims "+qwen, problems[0].String())
}
