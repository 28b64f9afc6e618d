package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/sdk/contract"
)

// defaultMaxTokens of `generate`, where no person watches.
const defaultMaxTokens = 256

func (a *app) generateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate MODEL (--prompt TEXT | --ids FILE)",
		Short: "Generate from a prompt or token ids, once",
		Long: "--prompt is one user message in the model's chat template, or the bare text with --raw or when the model has no\n" +
			"template. --ids FILE holds token ids, as a JSON list or separated by white space; - is stdin. A model without a\n" +
			"tokenizer answers with token ids.",
		Args: cobra.ExactArgs(1),
	}
	model, sampling := a.addModelFlags(cmd), addSamplingFlags(cmd)
	thinking := addThinkingFlags(cmd)
	prompt := cmd.Flags().String("prompt", "", "text to answer; - reads stdin")
	idsFile := cmd.Flags().String("ids", "", "file of token ids; - reads stdin")
	raw := cmd.Flags().Bool("raw", false, "take the prompt as it is, without the chat template")
	logprobs := cmd.Flags().Int("logprobs", -1, "report log probabilities with this many alternatives (with --json)")
	grammar := addConstraintFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		given := cmd.Flags().Changed
		if given("prompt") == given("ids") {
			return contract.Errorf(contract.InvalidArgument, "generate", "give either --prompt or --ids")
		}
		if *logprobs >= 0 && !*asJSON {
			return contract.Errorf(contract.InvalidArgument, "--logprobs", "needs --json")
		}
		s := sampling.settings().Or(generate.Settings{MaxTokens: new(uint32(defaultMaxTokens))})
		if *logprobs >= 0 {
			s.Logprobs = new(uint32(*logprobs))
		}
		var err error
		if s.Constraint, err = a.constraint(cmd, grammar); err != nil {
			return err
		}
		if err := s.Check(); err != nil {
			return err
		}
		base, err := thinking.conversation()
		if err != nil {
			return err
		}
		base.Held = s.Constraint != nil
		if (given("ids") || *raw) && (base.Thinking != nil || base.Effort != "") {
			return contract.Errorf(contract.InvalidArgument, "--thinking", "is about the chat template, which --ids and --raw do not use")
		}
		ids, text, err := a.generateInput(given("ids"), *idsFile, *prompt)
		if err != nil {
			return err
		}
		return a.withTalker(cmd.Context(), model, args[0], func(m admin.Model) error {
			p := generate.Prompt{IDs: ids}
			if ids == nil {
				if p, err = promptOf(m, text, *raw, base); err != nil {
					return err
				}
			}
			return a.generateOnce(cmd, m, p, s, *asJSON)
		})
	}
	return cmd
}

func (a *app) generateInput(fromIDs bool, idsFile, prompt string) (ids []int32, text string, err error) {
	if fromIDs {
		ids, err = a.readIDs(idsFile)
		return ids, "", err
	}
	args := []string{prompt}
	text, _, err = a.promptOf(args)
	return nil, text, err
}

// promptOf tokenizes a prompt: as one user message when the model has a template, else as it is with what the tokenizer
// puts around a text.
func promptOf(m admin.Model, text string, raw bool, c chat.Conversation) (generate.Prompt, error) {
	if raw || !m.HasTemplate() {
		ids, err := m.Encode(text, true)
		return generate.Prompt{IDs: ids}, err
	}
	c.Messages = []map[string]any{{"role": "user", "content": text}}
	return m.Prompt(c)
}

// generated is the JSON of `generate`.
type generated struct {
	TokenIDs     []int32             `json:"token_ids"`
	Text         string              `json:"text"`
	Reasoning    string              `json:"reasoning,omitempty"`
	FinishReason string              `json:"finish_reason"`
	Usage        generate.Usage      `json:"usage"`
	Logprobs     []tokenLogprobs     `json:"logprobs,omitempty"`
	Provenance   generate.Provenance `json:"provenance"`
}

type tokenLogprobs struct {
	tokenLogprob
	Top []tokenLogprob `json:"top"`
}

type tokenLogprob struct {
	ID      int32   `json:"id"`
	Logprob float32 `json:"logprob"`
}

func (a *app) generateOnce(cmd *cobra.Command, m admin.Model, p generate.Prompt, s generate.Settings, asJSON bool) error {
	out := generated{TokenIDs: []int32{}}
	r, err := m.Generate(cmd.Context(), p, s, func(d generate.Delta) error {
		for _, t := range d.Logprobs {
			item := tokenLogprobs{tokenLogprob{t.ID, t.Logprob}, []tokenLogprob{}}
			for _, alt := range t.Top {
				item.Top = append(item.Top, tokenLogprob{alt.ID, alt.Logprob})
			}
			out.Logprobs = append(out.Logprobs, item)
		}
		if asJSON {
			return nil
		}
		_, err := io.WriteString(a.Out, d.Text)
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case !asJSON && r.NoText != "": // what can be said of it are its ids, as --ids takes them
		a.note("token ids, as there is no text: %s", r.NoText)
		_, err := fmt.Fprintln(a.Out, spaced(r.IDs))
		return err
	case !asJSON:
		_, err := fmt.Fprintln(a.Out)
		return err
	}
	out.TokenIDs = append(out.TokenIDs, r.IDs...)
	out.Reasoning = r.Reasoning
	out.Text, out.FinishReason, out.Usage, out.Provenance = r.Text, r.Finish, r.Usage, r.Provenance
	return a.printJSON(out)
}

// readIDs reads token ids: a JSON list, or numbers separated by white space or commas.
func (a *app) readIDs(path string) ([]int32, error) {
	data, err := a.readInput(path)
	if err != nil {
		return nil, err
	}
	var ids []int32
	if text := strings.TrimSpace(string(data)); strings.HasPrefix(text, "[") {
		var numbers []json.Number
		if err := json.Unmarshal([]byte(text), &numbers); err != nil {
			return nil, contract.Errorf(contract.InvalidArgument, path, "is not a JSON list of token ids: %w", err)
		}
		for _, n := range numbers {
			id, err := strconv.ParseInt(n.String(), 10, 32)
			if err != nil {
				return nil, contract.Errorf(contract.InvalidArgument, path, "%q is not a token id", n)
			}
			ids = append(ids, int32(id))
		}
	} else {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' }) {
			id, err := strconv.ParseInt(word, 10, 32)
			if err != nil {
				return nil, contract.Errorf(contract.InvalidArgument, path, "%q is not a token id", word)
			}
			ids = append(ids, int32(id))
		}
	}
	if len(ids) == 0 {
		return nil, contract.Errorf(contract.InvalidArgument, path, "holds no token ids")
	}
	return ids, nil
}
