package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/sdk/contract"
)

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run MODEL [PROMPT]",
		Short: "Chat with a model, or answer one prompt",
		Long: "With a PROMPT, or a prompt on stdin, prints the answer and ends. On a terminal without a prompt it chats:\n" +
			"/clear forgets the conversation, /bye or Ctrl-D ends it.",
		Args: cobra.RangeArgs(1, 2),
	}
	model, sampling := a.addModelFlags(cmd), addSamplingFlags(cmd)
	thinking := addThinkingFlags(cmd)
	system := cmd.Flags().String("system", "", "system message")
	stats := cmd.Flags().Bool("stats", false, "say after each answer what it took: tokens, times, drafts")
	grammar := addConstraintFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := sampling.settings()
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
		prompt, chatting, err := a.promptOf(args[1:])
		if err != nil {
			return err
		}
		return a.withTalker(cmd.Context(), model, args[0], func(m admin.Model) error {
			c := &conversation{app: a, model: m, settings: s, system: *system, base: base, stats: *stats}
			c.clear()
			if chatting {
				return c.loop(cmd.Context())
			}
			return c.answer(cmd.Context(), prompt)
		})
	}
	return cmd
}

// promptOf is the prompt of a one-shot run, or that a person at a terminal wants to chat.
func (a *app) promptOf(args []string) (prompt string, chat bool, err error) {
	switch {
	case len(args) == 1 && args[0] != "-":
		prompt = args[0]
	case len(args) == 0 && a.InTerminal:
		return "", true, nil
	default:
		data, err := readBounded("stdin", a.In)
		if err != nil {
			return "", false, err
		}
		prompt = strings.TrimRight(string(data), "\r\n")
	}
	if prompt == "" {
		return "", false, contract.Errorf(contract.InvalidArgument, "PROMPT", "is empty")
	}
	return prompt, false, checkText("PROMPT", prompt)
}

// conversation is one chat with one model.
type conversation struct {
	app      *app
	model    admin.Model
	settings generate.Settings
	system   string
	base     chat.Conversation // how the model is to reason
	messages []map[string]any
	stats    bool // say what an answer took
	told     bool // the notes of the settings were printed
	thinking bool // reasoning is shown, and the answer has not begun
}

func (c *conversation) clear() {
	c.messages = nil
	if c.system != "" {
		c.messages = append(c.messages, map[string]any{"role": "system", "content": c.system})
	}
}

// answer prints the answer to one user message, exactly and with a newline behind it.
func (c *conversation) answer(ctx context.Context, prompt string) error {
	asked := append(c.messages, map[string]any{"role": "user", "content": prompt})
	conversation := c.base
	conversation.Messages = asked
	p, err := c.model.Prompt(conversation)
	if err != nil {
		return err
	}
	begun := false
	r, err := c.model.Generate(ctx, p, c.settings, func(d generate.Delta) error {
		c.thought(d, begun)
		begun = begun || d.Text != ""
		_, err := io.WriteString(c.app.Out, d.Text)
		return err
	})
	if err == nil || begun {
		_, _ = fmt.Fprintln(c.app.Out) // what was printed stays a line of its own before an error
	}
	if err != nil {
		return err
	}
	if !c.told {
		c.told = true
		for _, n := range r.Provenance.Notes {
			if strings.HasPrefix(n, "generation_config.json") {
				c.app.note("%s", n)
			}
		}
	}
	if c.stats {
		c.app.note("%s", took(r.Usage))
	}
	answer := map[string]any{"role": "assistant", "content": r.Text}
	if r.Reasoning != "" {
		answer["reasoning_content"] = r.Reasoning
	}
	c.messages = append(asked, answer)
	return nil
}

// took says what an answer took.
func took(u generate.Usage) string {
	rate := func(tokens uint32, took time.Duration) string {
		text := fmt.Sprintf("%d tokens in %s", tokens, took.Round(10*time.Millisecond))
		if tokens > 0 && took > 0 {
			text += fmt.Sprintf(" (%.1f a second)", float64(tokens)/took.Seconds())
		}
		return text
	}
	text := "prompt " + rate(u.PromptTokens-u.CachedTokens, u.Prefill)
	if u.CachedTokens > 0 {
		text += fmt.Sprintf(" and %d kept ones", u.CachedTokens)
	}
	text += ", answer " + rate(u.GeneratedTokens, u.Decode)
	if d := u.Speculation; d != nil {
		if d.Drafted > 0 {
			text += fmt.Sprintf(", %d of %d drafted tokens accepted in %d rounds", d.Accepted, d.Drafted, d.Rounds)
		}
		if d.Parked != "" {
			text += ", drafting is parked: " + d.Parked
		}
	}
	return text
}

// thought shows reasoning where a person watches: beside the answer, never in it.
func (c *conversation) thought(d generate.Delta, begun bool) {
	if !c.app.InTerminal {
		return
	}
	if d.Reasoning != "" {
		c.thinking = true
		_, _ = fmt.Fprint(c.app.Err, d.Reasoning)
	}
	if d.Text != "" && !begun && c.thinking {
		c.thinking = false
		_, _ = fmt.Fprint(c.app.Err, "\n---\n")
	}
}

// loop reads messages until the end. An answer that fails ends the loop only when the model is gone for good.
func (c *conversation) loop(ctx context.Context) error {
	in := bufio.NewReader(c.app.In)
	for {
		_, _ = fmt.Fprint(c.app.Err, ">>> ")
		line, err := readLine(ctx, in)
		switch text := strings.TrimSpace(line); {
		case ctx.Err() != nil:
			return contract.Errorf(contract.Cancelled, "", "interrupted")
		case err != nil && text == "", text == "/bye":
			_, _ = fmt.Fprintln(c.app.Err)
			return nil
		case text == "":
		case text == "/clear":
			c.clear()
		case strings.HasPrefix(text, "/"):
			_, _ = fmt.Fprintln(c.app.Err, "commands: /clear, /bye")
		default:
			if err := c.answer(ctx, text); err != nil {
				if contract.KindOf(err) == contract.Cancelled || c.model.Ready(ctx) != nil {
					return err
				}
				_, _ = fmt.Fprintf(c.app.Err, "clade: %s\n", oneLine(err.Error()))
			}
		}
	}
}

// readLine reads a line, or gives up when ctx ends; the reading goroutine then ends with the process.
func readLine(ctx context.Context, in *bufio.Reader) (string, error) {
	type line struct {
		text string
		err  error
	}
	got := make(chan line, 1)
	go func() {
		text, err := in.ReadString('\n')
		got <- line{text, err}
	}()
	select {
	case l := <-got:
		return l.text, l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
