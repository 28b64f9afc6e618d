package cli

import (
	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// constraintFlags hold an answer to a grammar.
type constraintFlags struct {
	schema, regex, grammar *string
	object                 *bool
	choice                 *[]string
}

func addConstraintFlags(cmd *cobra.Command) constraintFlags {
	flags := cmd.Flags()
	return constraintFlags{
		schema:  flags.String("schema", "", "file of a JSON schema that the answer is held to; - reads stdin"),
		object:  flags.Bool("json-object", false, "hold the answer to being a JSON object"),
		regex:   flags.String("regex", "", "hold the answer to a regular expression, as a whole"),
		grammar: flags.String("grammar", "", "file of a Lark grammar that the answer is held to; - reads stdin"),
		choice:  flags.StringArray("choice", nil, "hold the answer to one of the given texts; give at least two times"),
	}
}

// constraint is what the flags ask for, nil for nothing.
func (a *app) constraint(cmd *cobra.Command, f constraintFlags) (*generate.Constraint, error) {
	var c generate.Constraint
	var given []string
	for _, name := range []string{"schema", "json-object", "regex", "grammar", "choice"} {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	switch {
	case len(given) == 0:
		return nil, nil
	case len(given) > 1:
		return nil, contract.Errorf(contract.InvalidArgument, given[1], "cannot stand beside %s: an answer is held to one grammar", given[0])
	}
	switch given[0] {
	case "--schema", "--grammar":
		file := *f.schema + *f.grammar
		data, err := a.readInput(file)
		if err != nil {
			return nil, err
		}
		if len(data) == 0 {
			return nil, contract.Errorf(contract.InvalidArgument, file, "is empty")
		}
		if given[0] == "--schema" {
			c.JSONSchema = string(data)
		} else {
			c.Lark = string(data)
		}
	case "--json-object":
		if c.JSONObject = *f.object; !c.JSONObject {
			return nil, nil
		}
	case "--regex":
		c.Regex = *f.regex
	case "--choice":
		c.Choice = *f.choice
	}
	return &c, nil
}
