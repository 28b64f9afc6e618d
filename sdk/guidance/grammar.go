package guidance

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Limits of a caller's grammar. Compiling takes about a second of a core at the largest; nesting is bounded because parsers
// recurse over it, beyond which libguidance compiles on a stack of its own.
const (
	MaxBytes   = 512 << 10 // of a schema or of all choices
	MaxText    = 128 << 10 // of an expression or a Lark grammar
	MaxNesting = 100
	MaxChoices = 10000
	// maxStates bounds the automaton's memory, about 2 kB a state.
	maxStates = 64 << 10
)

// The white space between two tokens of JSON: one space, or a line break with its indentation. Unbounded, a model can stay
// there for ever (a trap of others).
const whiteSpace = ` |\r?\n[ \t]{0,64}`

// Grammar is a Constraint, checked as far as that needs no vocabulary.
type Grammar struct {
	kind    string // of llguidance
	text    string
	subject string // the field that it is from
	schema  any    // of a JSON schema, for messages
}

// Read takes the grammar of a request.
func Read(c *cladev1.Constraint) (Grammar, error) {
	if c.GetGrammar() == nil {
		return Grammar{}, contract.Errorf(contract.InvalidArgument, "constraint", "it names no grammar")
	}
	switch g := c.Grammar.(type) {
	case *cladev1.Constraint_JsonSchema:
		return readSchema(g.JsonSchema, c.GetCompactWhitespace())
	case *cladev1.Constraint_JsonObject:
		if !g.JsonObject {
			return Grammar{}, contract.Errorf(contract.InvalidArgument, "constraint.json_object", "false is no grammar: leave the constraint out")
		}
		out, err := readSchema(`{"type":"object"}`, c.GetCompactWhitespace())
		out.subject = "constraint.json_object"
		return out, err
	case *cladev1.Constraint_Regex:
		return readText("regex", "constraint.regex", g.Regex, c)
	case *cladev1.Constraint_Lark:
		return readText("lark", "constraint.lark", g.Lark, c)
	case *cladev1.Constraint_Choice:
		return readChoice(g.Choice.GetOptions(), c)
	}
	return Grammar{}, contract.Errorf(contract.UnsupportedOption, "constraint", "a grammar of a kind that this plugin does not know")
}

func readText(kind, subject, text string, c *cladev1.Constraint) (Grammar, error) {
	if c.GetCompactWhitespace() {
		return Grammar{}, contract.Errorf(contract.InvalidArgument, "constraint.compact_whitespace", "is for JSON only")
	}
	if err := checkText(subject, text); err != nil {
		return Grammar{}, err
	}
	return Grammar{kind: kind, text: text, subject: subject}, nil
}

// checkText bounds what a recursive parser will see.
func checkText(subject, text string) error {
	if text == "" {
		return contract.Errorf(contract.InvalidArgument, subject, "is empty")
	}
	if len(text) > MaxText {
		return contract.Errorf(contract.InvalidArgument, subject, "%d bytes, at most %d", len(text), MaxText)
	}
	if slashes := len(text) - len(strings.TrimRight(text, `\`)); slashes%2 == 1 {
		return contract.Errorf(contract.InvalidArgument, subject, "ends within an escape")
	}
	if strings.ContainsRune(text, 0) {
		return contract.Errorf(contract.InvalidArgument, subject, "holds a zero byte")
	}
	depth := 0
	for _, c := range []byte(text) {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
		if depth > MaxNesting {
			return contract.Errorf(contract.InvalidArgument, subject, "brackets are nested deeper than %d", MaxNesting)
		}
	}
	return nil
}

// readChoice makes an expression of alternatives, in which everything but letters and digits is spelled by its number.
func readChoice(options []string, c *cladev1.Constraint) (Grammar, error) {
	const subject = "constraint.choice"
	if c.GetCompactWhitespace() {
		return Grammar{}, contract.Errorf(contract.InvalidArgument, "constraint.compact_whitespace", "is for JSON only")
	}
	if len(options) == 0 || len(options) > MaxChoices {
		return Grammar{}, contract.Errorf(contract.InvalidArgument, subject, "%d options, want 1 to %d", len(options), MaxChoices)
	}
	var b strings.Builder
	for i, option := range options {
		if option == "" {
			return Grammar{}, contract.Errorf(contract.InvalidArgument, fmt.Sprintf("%s[%d]", subject, i), "is empty")
		}
		if i > 0 {
			b.WriteByte('|')
		}
		for _, r := range option {
			if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
				b.WriteRune(r)
			} else {
				fmt.Fprintf(&b, `\x{%X}`, r)
			}
		}
	}
	if b.Len() > MaxBytes {
		return Grammar{}, contract.Errorf(contract.InvalidArgument, subject, "the options are too long: %d bytes, at most %d", b.Len(), MaxBytes)
	}
	return Grammar{kind: "regex", text: b.String(), subject: subject}, nil
}

// jsonOptions are llguidance's, put into the schema's root. lenient and coerce_one_of, which approximate, stay off. Without \u no
// name has two spellings, of which llguidance would take the second for another name than the schema's.
type jsonOptions struct {
	Flexible bool   `json:"whitespace_flexible"`
	Pattern  string `json:"whitespace_pattern,omitempty"`
	Escapes  string `json:"json_allowed_escapes"`
}

const (
	optionsKey = "x-guidance"
	escapes    = `nrbtf\"`
)

func optionsFor(compact bool) json.RawMessage {
	o := jsonOptions{Flexible: !compact, Escapes: escapes}
	if !compact {
		o.Pattern = whiteSpace
	}
	raw, _ := json.Marshal(o)
	return raw
}
