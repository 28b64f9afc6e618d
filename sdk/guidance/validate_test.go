package guidance

import (
	"bytes"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// validator compiles a schema with a validator that shares no code with llguidance.
func validator(t testing.TB, text string) (*jsonschema.Schema, error) {
	t.Helper()
	return compileWith(t, jsonschema.NewCompiler(), text)
}

// validatorOfFormats holds strings to their format too, which the newer drafts only note.
func validatorOfFormats(t testing.TB, text string) (*jsonschema.Schema, error) {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	return compileWith(t, c, text)
}

func compileWith(t testing.TB, c *jsonschema.Compiler, text string) (*jsonschema.Schema, error) {
	t.Helper()
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
	require.NoError(t, err)
	if err := c.AddResource("mem:///schema.json", tree); err != nil {
		return nil, err
	}
	return c.Compile("mem:///schema.json")
}

// validate holds one sampled text to the schema.
func validate(t testing.TB, s *jsonschema.Schema, text string) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
	if err != nil {
		return err
	}
	return s.Validate(value)
}
