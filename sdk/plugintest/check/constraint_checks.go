package check

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/tokenizer"
)

// grammar is one constraint, how a text that it allows is told, and one of its kind that means nothing.
type grammar struct {
	path    string
	held    *cladev1.Constraint
	allows  func(text string) bool
	nothing *cladev1.Constraint
}

// grammars have answers of a few tokens in any vocabulary that can spell them, so that they end before max_tokens does.
func grammars() []grammar {
	choices := []string{"yes", "yesterday", "no"}
	digits := regexp.MustCompile(`^[0-9]{3}x?$`)
	choice := func(options ...string) *cladev1.Constraint {
		return &cladev1.Constraint{Grammar: &cladev1.Constraint_Choice{Choice: &cladev1.Choice{Options: options}}}
	}
	pattern := func(p string) *cladev1.Constraint {
		return &cladev1.Constraint{Grammar: &cladev1.Constraint_Regex{Regex: p}}
	}
	schema := func(text string) *cladev1.Constraint {
		return &cladev1.Constraint{Grammar: &cladev1.Constraint_JsonSchema{JsonSchema: text}}
	}
	lark := func(text string) *cladev1.Constraint {
		return &cladev1.Constraint{Grammar: &cladev1.Constraint_Lark{Lark: text}}
	}
	return []grammar{
		{"constraint.choice", choice(choices...), func(text string) bool { return slices.Contains(choices, text) }, choice()},
		{"constraint.regex", pattern(`[0-9]{3}x?`), digits.MatchString, pattern(`(`)},
		{"constraint.json_schema", schema(`{"enum": [12, "a", true]}`), func(text string) bool {
			var v any
			return json.Unmarshal([]byte(text), &v) == nil && (v == 12. || v == "a" || v == true)
		}, schema(`{"type": "colour"}`)},
		{"constraint.lark", lark(`start: "one" | "two"`), func(text string) bool { return text == "one" || text == "two" }, lark(`start: missing`)},
	}
}

// checkConstraints holds answers to each kind of grammar: greedy, sampled, and resumed in the middle of one.
func (s *subject) checkConstraints(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	declared := slices.DeleteFunc(grammars(), func(g grammar) bool { return !s.declared[g.path] })
	if len(declared) == 0 {
		return undeclared("no constraint")
	}
	text, err := tokenizer.FromArtifact(s.artifact)
	if err != nil {
		return notRun("the model's tokens are not known: %v", err)
	}
	err = each(declared, func(g grammar) error {
		for seed := range uint64(4) {
			held, err := s.held(ctx, p, text, g, seed)
			if err != nil {
				return err
			}
			if err := s.resumedHeld(ctx, p, g, seed, held); err != nil {
				return err
			}
		}
		_, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt, 0), start: holding(g.nothing, 0)})
		if wrong := refusal(err, []contract.Kind{contract.InvalidArgument, contract.UnsupportedOption}, g.path); wrong != nil {
			return fmt.Errorf("%s that means nothing %w", g.path, wrong)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.works(ctx, p)
}

// holding asks for a grammar, greedily for seed 0, and lets the answer end.
func holding(c *cladev1.Constraint, seed uint64) func(*cladev1.GenerateStart) {
	return func(g *cladev1.GenerateStart) {
		g.Constraint = c
		if g.MaxTokens != nil {
			g.MaxTokens = proto.Uint32(4 * usualTokens)
		}
		if g.Sampling != nil {
			g.Sampling.IgnoreEos = nil
		}
		if seed > 0 && g.Sampling.GetTemperature() == 0 && g.Sampling != nil {
			g.Sampling.Temperature, g.Sampling.Seed = proto.Float64(1.5), &seed
		}
	}
}

// held generates under a grammar and reads what came.
func (s *subject) held(ctx context.Context, p *process, t *tokenizer.Tokenizer, g grammar, seed uint64) ([]int32, error) {
	a, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt, 0), start: holding(g.held, seed)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.path, err)
	}
	var text strings.Builder
	for _, id := range a.ids {
		text.Write(t.TokenBytes(id))
	}
	switch {
	case !g.allows(text.String()):
		return nil, fmt.Errorf("%s: the answer %.60q is not one that the grammar allows", g.path, text.String())
	case !slices.Contains(completed, a.finish.GetReason()):
		return nil, fmt.Errorf("%s: a complete answer ends with %s, STOP or CONSTRAINT is due", g.path, a.finish.GetReason())
	}
	return a.ids, nil
}

// resumedHeld generates the rest behind the first token: the grammar goes on where the answer was.
func (s *subject) resumedHeld(ctx context.Context, p *process, g grammar, seed uint64, whole []int32) error {
	if !s.declared["generated_prefix"] || len(whole) < 2 {
		return nil
	}
	prompt := s.prompt(usualPrompt, 0)
	a, err := s.generate(ctx, p, ask{ids: append(prompt, whole[0]), start: func(start *cladev1.GenerateStart) {
		holding(g.held, seed)(start)
		start.GeneratedPrefix = proto.Uint32(uint32(len(prompt)))
	}})
	if err != nil {
		return fmt.Errorf("%s, resumed behind its first token: %w", g.path, err)
	}
	return s.equal(g.path+", resumed behind its first token", whole[1:], a.ids)
}

// completed are the ends of an answer that its grammar allows: by a token that ends it, or because nothing may follow.
var completed = []cladev1.FinishReason{cladev1.FinishReason_FINISH_REASON_STOP, cladev1.FinishReason_FINISH_REASON_CONSTRAINT}
