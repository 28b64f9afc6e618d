package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

// speller is a tiny checkpoint whose token n is byte n. Byte 2 ends a text.
func speller(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(tinyPaths["llama-f32"])))
	vocab := map[string]int{}
	next := rune(256)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			vocab[string(rune(b))] = b
			continue
		}
		vocab[string(next)] = b
		next++
	}
	data, err := json.Marshal(map[string]any{
		"version": "1.0", "added_tokens": []any{},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o600))
	return dir
}

func spelled(ids []int32) []byte {
	var b bytes.Buffer
	for _, id := range ids {
		b.WriteByte(byte(id))
	}
	return b.Bytes()
}

func constrained(c *cladev1.Constraint, seed uint64, most uint32) *plugin.GenerateJob {
	return &plugin.GenerateJob{IDs: []int32{'a', 'n', 's', 'w', 'e', 'r', ':'}, Start: &cladev1.GenerateStart{
		MaxTokens: &most, Constraint: c, Sampling: &cladev1.Sampling{Temperature: ptr(0.7), Seed: &seed},
	}}
}

var grammars = map[string]struct {
	constraint *cladev1.Constraint
	whole      *regexp.Regexp
}{
	"schema": {
		&cladev1.Constraint{Grammar: &cladev1.Constraint_JsonSchema{JsonSchema: `{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":99},
			"b":{"enum":["x","yy"]}},"required":["a","b"],"additionalProperties":false}`}, CompactWhitespace: ptr(true)},
		regexp.MustCompile(`^\{"a":\d{1,2},"b":"(x|yy)"\}$`),
	},
	"regex":  {&cladev1.Constraint{Grammar: &cladev1.Constraint_Regex{Regex: `[a-c]{3}-[0-9]{4}`}}, regexp.MustCompile(`^[a-c]{3}-\d{4}$`)},
	"lark":   {&cladev1.Constraint{Grammar: &cladev1.Constraint_Lark{Lark: "start: \"(\" /[01]{2}/ \")\""}}, regexp.MustCompile(`^\([01]{2}\)$`)},
	"choice": {&cladev1.Constraint{Grammar: &cladev1.Constraint_Choice{Choice: &cladev1.Choice{Options: []string{"left", "right"}}}}, regexp.MustCompile(`^(left|right)$`)},
}

func TestAnAnswerIsHeldToItsGrammar(t *testing.T) {
	m, _ := open(t, backend(t), spec(t, speller(t), &cladev1.Composition{}), nil)
	for name, g := range grammars {
		for seed := range uint64(5) {
			ids, finish := generate(t, m, constrained(g.constraint, seed, 60))
			require.Regexp(t, g.whole, string(spelled(ids)), name)
			require.Equal(t, cladev1.FinishReason_FINISH_REASON_CONSTRAINT, finish.Reason, name)
		}
	}
	object := &cladev1.Constraint{Grammar: &cladev1.Constraint_JsonObject{JsonObject: true}}
	ids, finish := generate(t, m, constrained(object, 3, 40))
	if finish.Reason != cladev1.FinishReason_FINISH_REASON_LENGTH {
		require.True(t, json.Valid(spelled(ids)))
	}
	require.Equal(t, byte('{'), spelled(ids)[0])
}

// In another process the ids that were generated are committed again from the first one.
func TestAConstrainedAnswerGoesOnAfterARestart(t *testing.T) {
	m, _ := open(t, backend(t), spec(t, speller(t), &cladev1.Composition{}), nil)
	job := constrained(grammars["schema"].constraint, 7, 60)
	whole, _ := generate(t, m, job)
	for cut := 1; cut < len(whole); cut += 3 {
		resumed := constrained(grammars["schema"].constraint, 7, 60)
		resumed.Start.GeneratedPrefix = ptr(uint32(len(job.IDs)))
		resumed.IDs = append(resumed.IDs, whole[:cut]...)
		rest, finish := generate(t, m, resumed)
		require.Equal(t, whole[cut:], rest)
		require.Equal(t, cladev1.FinishReason_FINISH_REASON_CONSTRAINT, finish.Reason)
	}
}

func TestRowsAreHeldToTheirOwnGrammars(t *testing.T) {
	m, _ := open(t, backend(t), spec(t, speller(t), &cladev1.Composition{Rows: ptr(uint32(3))}), nil)
	alone := map[string][]int32{}
	for name, g := range grammars {
		alone[name], _ = generate(t, m, constrained(g.constraint, 11, 60))
	}
	var all sync.WaitGroup
	for name, g := range grammars {
		all.Go(func() {
			var ids []int32
			err := m.Generate(context.Background(), constrained(g.constraint, 11, 60), func(r *cladev1.GenerateResponse) error {
				ids = append(ids, r.GetStep().GetIds()...)
				return nil
			})
			if err != nil || !bytes.Equal(spelled(ids), spelled(alone[name])) {
				t.Errorf("%s: %q beside others, %q alone: %v", name, spelled(ids), spelled(alone[name]), err)
			}
		})
	}
	all.Wait()
}

func TestAGrammarThatCannotBeHeldRefusesTheRequestByName(t *testing.T) {
	b := backend(t)
	m, _ := open(t, b, spec(t, speller(t), &cladev1.Composition{}), nil)
	bad := &cladev1.Constraint{Grammar: &cladev1.Constraint_JsonSchema{JsonSchema: `{"properties":{"a":{"not":{}}}}`}}
	err := m.Generate(context.Background(), constrained(bad, 1, 5), func(*cladev1.GenerateResponse) error { return nil })
	require.ErrorContains(t, err, "constraint.json_schema#/properties/a/not")
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err))

	silent, _ := open(t, b, spec(t, tinyPaths["llama-f32"], &cladev1.Composition{}), nil)
	err = silent.Generate(context.Background(), constrained(grammars["choice"].constraint, 1, 5), func(*cladev1.GenerateResponse) error { return nil })
	require.ErrorContains(t, err, "tokens are not known")
}
