package cli

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/sdk/contract"
)

func (a *app) embedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "embed MODEL [--text TEXT | --ids FILE]",
		Short: "Embed text: one vector of length 1 for each",
		Long: "--text is one text; - reads it from stdin. Without --text and --ids every line of stdin that is not empty is one.\n" +
			"A text gets what the model's family ends it with; --ids are taken as they are.",
		Args: cobra.ExactArgs(1),
	}
	model := a.addModelFlags(cmd)
	model.embeds = true
	texts := cmd.Flags().StringArray("text", nil, "text to embed, several times for several; - reads stdin")
	idsFile := cmd.Flags().String("ids", "", "file of token ids; - reads stdin")
	instruct := cmd.Flags().String("instruct", "", "what the texts are searched for, put before them in the family's form")
	dimensions := cmd.Flags().Int("dimensions", 0, "cut the vectors to this many values")
	lora := cmd.Flags().String("lora", "", loraUsage)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		given := cmd.Flags().Changed
		switch {
		case given("ids") && given("text"):
			return contract.Errorf(contract.InvalidArgument, "embed", "give either --ids or --text")
		case given("ids") && given("instruct"):
			return contract.Errorf(contract.InvalidArgument, "--instruct", "is put before texts, which --ids are not")
		case given("dimensions") && *dimensions < 1:
			return contract.Errorf(contract.InvalidArgument, "--dimensions", "is %d; want at least 1", *dimensions)
		}
		inputs, err := a.embedInputs(given("ids"), *idsFile, *texts)
		if err != nil {
			return err
		}
		q := generate.EmbedRequest{Inputs: inputs, Instruction: *instruct, Dimensions: *dimensions}
		if given("lora") {
			if _, err := contract.ParseAdapters(*lora); err != nil {
				return err
			}
			q.Adapter = lora
		}
		return a.withModel(cmd.Context(), model, args[0], func(m *loader.Model) error { return a.embed(cmd.Context(), m, q, *asJSON) })
	}
	return cmd
}

func (a *app) embedInputs(fromIDs bool, idsFile string, texts []string) ([]generate.EmbedInput, error) {
	if fromIDs {
		ids, err := a.readIDs(idsFile)
		return []generate.EmbedInput{{IDs: ids}}, err
	}
	var out []generate.EmbedInput
	for _, text := range texts {
		if text == "-" {
			data, err := a.readInput("-")
			if err != nil {
				return nil, err
			}
			text = string(data)
		}
		out = append(out, generate.EmbedInput{Text: text})
	}
	if len(texts) > 0 {
		return out, nil
	}
	data, err := a.readInput("-")
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(strings.NewReader(string(data)))
	lines.Buffer(nil, len(data)+1)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			out = append(out, generate.EmbedInput{Text: line})
		}
	}
	if len(out) == 0 {
		return nil, contract.Errorf(contract.InvalidArgument, "stdin", "holds no line to embed").WithNext("give --text")
	}
	return out, lines.Err()
}

// embedded is the JSON of `embed`.
type embedded struct {
	// Embedding is the first; Embeddings are all, in the order of the texts.
	Embedding  []float32   `json:"embedding"`
	Embeddings [][]float32 `json:"embeddings"`
	Dimensions int         `json:"dimensions"`
	Tokens     int         `json:"tokens"`
	Device     string      `json:"device"`
	DType      string      `json:"dtype"`
}

func (a *app) embed(ctx context.Context, m *loader.Model, q generate.EmbedRequest, asJSON bool) error {
	r, err := m.Embed(ctx, q)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(embedded{
			r.Vectors[0], r.Vectors, len(r.Vectors[0]), r.Tokens, m.Facts().GetDevice(), m.Facts().GetDtype(),
		})
	}
	for _, v := range r.Vectors {
		var line []byte
		for i, x := range v {
			if i > 0 {
				line = append(line, ' ')
			}
			line = strconv.AppendFloat(line, float64(x), 'g', -1, 32)
		}
		if _, err := fmt.Fprintf(a.Out, "%s\n", line); err != nil {
			return err
		}
	}
	return nil
}
