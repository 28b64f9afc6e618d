package cli

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/sdk/contract"
)

// withText decides MODEL and reads its text side; no plugin is started.
func (a *app) withText(arg string, fn func(loader.Text) error) error {
	h, err := a.host()
	if err != nil {
		return err
	}
	m, err := h.store.Resolve(arg)
	if err != nil {
		return err
	}
	d, err := h.Decide(m)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only read
	t, err := d.ReadText()
	if err != nil {
		return err
	}
	return fn(t)
}

func (a *app) tokenizeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tokenize MODEL (--text TEXT | --text-file FILE)", Short: "Print the token ids of a text", Args: cobra.ExactArgs(1)}
	text := cmd.Flags().String("text", "", "text to tokenize")
	file := cmd.Flags().String("text-file", "", "file to tokenize; - reads stdin")
	noSpecial := cmd.Flags().Bool("no-special", false, "leave out what the tokenizer puts around a text")
	asJSON := jsonFlag(cmd)
	cmd.ValidArgsFunction = a.completeModel
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("text") == cmd.Flags().Changed("text-file") {
			return contract.Errorf(contract.InvalidArgument, "tokenize", "give either --text or --text-file")
		}
		if *file != "" {
			var err error
			if *text, err = a.readText(*file); err != nil {
				return err
			}
		}
		if err := checkText("--text", *text); err != nil {
			return err
		}
		return a.withText(args[0], func(t loader.Text) error {
			ids, err := t.Encode(*text, !*noSpecial)
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(map[string]any{"ids": append([]int32{}, ids...)})
			}
			_, err = io.WriteString(a.Out, spaced(ids)+"\n")
			return err
		})
	}
	return cmd
}

// spaced is token ids as people and --ids read them.
func spaced(ids []int32) string {
	words := make([]string, 0, len(ids))
	for _, id := range ids {
		words = append(words, strconv.Itoa(int(id)))
	}
	return strings.Join(words, " ")
}

func (a *app) templateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "template MODEL --messages FILE", Short: "Print what the chat template makes of messages", Args: cobra.ExactArgs(1),
		Long: "Prints exactly the rendered prompt, without a newline of its own.",
	}
	messages := cmd.Flags().String("messages", "", "JSON file of messages; - reads stdin")
	tools := cmd.Flags().String("tools", "", "JSON file of tool definitions")
	documents := cmd.Flags().String("documents", "", "JSON file of documents")
	thinking := addThinkingFlags(cmd)
	kwargs := cmd.Flags().String("kwargs", "", `JSON object of template variables, such as {"enable_thinking": false}`)
	noPrompt := cmd.Flags().Bool("no-generation-prompt", false, "leave out the beginning of the assistant's turn")
	asJSON := jsonFlag(cmd)
	cmd.ValidArgsFunction = a.completeModel
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *messages == "" {
			return contract.Errorf(contract.InvalidArgument, "--messages", "is needed")
		}
		data, err := a.readInput(*messages)
		if err != nil {
			return err
		}
		list, err := chat.ParseMessages(data)
		if err != nil {
			return err
		}
		c, err := thinking.conversation()
		if err != nil {
			return err
		}
		c.Messages = list
		if *tools != "" {
			if c.Tools, err = a.readInput(*tools); err != nil {
				return err
			}
		}
		if *documents != "" {
			if c.Documents, err = a.readInput(*documents); err != nil {
				return err
			}
		}
		if *kwargs != "" {
			if err := json.Unmarshal([]byte(*kwargs), &c.Kwargs); err != nil {
				return contract.Errorf(contract.InvalidArgument, "--kwargs", "not a JSON object: %w", err)
			}
		}
		return a.withText(args[0], func(t loader.Text) error {
			out, err := t.Render(c, !*noPrompt)
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(map[string]string{"prompt": out})
			}
			_, err = io.WriteString(a.Out, out)
			return err
		})
	}
	return cmd
}
