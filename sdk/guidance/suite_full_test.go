//go:build full

package guidance

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

// The JSON-Schema test suite as jsonschema 4.23.0 ships it; make test-full brings both.
const suiteSHA256 = "d71497fef26351a33265337fa77ffeb82423f3ea21283cd9467bb03999266bc4"

func oracleFile(name string) string {
	return filepath.Join(filepath.Dir(libraryPath()), "..", "..", "..", "..", "oracle", name)
}

type group struct {
	Description string
	Schema      json.RawMessage
	Tests       []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

// dialects are the suite's drafts that llguidance knows.
var dialects = map[string]string{
	"draft4": drafts[4], "draft6": drafts[3], "draft7": drafts[2], "draft2019-09": drafts[1], "draft2020-12": drafts[0],
}

func readSuite(t *testing.T) map[string][]group {
	file := oracleFile("jsonschema-4.23.0.tar.gz")
	data, err := os.ReadFile(file)
	require.NoError(t, err, "make test-full brings it")
	sum := sha256.Sum256(data)
	require.Equal(t, suiteSHA256, hex.EncodeToString(sum[:]), file)
	z, err := gzip.NewReader(strings.NewReader(string(data)))
	require.NoError(t, err)
	out := map[string][]group{}
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if err == io.EOF {
			return out
		}
		require.NoError(t, err)
		name, ok := strings.CutPrefix(h.Name, "jsonschema-4.23.0/json/tests/")
		if draft, _, _ := strings.Cut(name, "/"); !ok || dialects[draft] == "" || path.Ext(name) != ".json" {
			continue
		}
		var groups []group
		require.NoError(t, json.NewDecoder(files).Decode(&groups), name)
		out[name] = groups
	}
}

// withDialect names the draft in a schema that names none.
func withDialect(raw json.RawMessage, draft string) string {
	text := strings.TrimSpace(string(raw))
	if !strings.HasPrefix(text, "{") || strings.Contains(text, `"$schema"`) {
		return text
	}
	comma := ","
	if strings.TrimSpace(text[1:]) == "}" {
		comma = ""
	}
	return fmt.Sprintf(`{"$schema":%q%s%s`, draft, comma, text[1:])
}

// sampled is what the second validator gets.
type sampled struct {
	Where  string          `json:"where"`
	Schema json.RawMessage `json:"schema"`
	Texts  []string        `json:"texts"`
}

// A difference is where llguidance, or a validator's own regular expressions, are known to be apart from the suite. All but the length of
// an address lie in the suite's optional part; docs/guidance.md lists the first kind for users.
var differences = []struct {
	file, what string
	invalid    bool // instances that llguidance takes
	validators bool // texts that only the validators refuse
}{
	{file: "optional/format/date.json", what: "29 February is taken in every year", invalid: true},
	{file: "optional/format/date-time.json", what: "a leap second is taken at every minute", invalid: true},
	{file: "optional/format/time.json", what: "a leap second is taken at every minute", invalid: true},
	{file: "format/email.json", what: "the part before the @ may be longer than 64", validators: true},
	{file: "/format.json: email format", what: "the same", validators: true},
	{file: "optional/content.json", what: "contentMediaType and contentEncoding are notes, as in newer drafts", invalid: true},
	{file: "optional/ecmascript-regex.json", what: `\s leaves out U+FEFF; Go's \s is ASCII, Python has no \p`, invalid: true, validators: true},
}

func differs(where string, invalid bool) bool {
	for _, d := range differences {
		if strings.Contains(where, d.file) && (invalid && d.invalid || !invalid && d.validators) {
			return true
		}
	}
	return false
}

// Every text sampled under a schema of the suite that compiles is valid for an independent validator, none of the suite's invalid
// instances is taken, and every schema that does not compile is refused with a place in it.
func TestSuiteOfJSONSchemaHolds(t *testing.T) {
	const perSchema = 8
	w := newWords(common...)
	v := newTestVocabulary(t, w)
	var total, compiled, refused, texts, open, invalid, valid, taken, known int
	reasons := map[string]int{}
	var forPython []sampled
	suite := readSuite(t)
	require.Len(t, suite, 0+len(suite))
	for name, groups := range suite {
		draft, _, _ := strings.Cut(name, "/")
		for _, g := range groups {
			total++
			where, text := name+": "+g.Description, withDialect(g.Schema, dialects[draft])
			grammar, err := Read(schema(text))
			var m *Matcher
			if err == nil {
				m, err = v.Start(grammar)
			}
			if err != nil {
				refused++
				var refusal *contract.Error
				require.ErrorAs(t, err, &refusal, where)
				require.True(t, strings.HasPrefix(refusal.Subject, schemaSubject), "%s: %v", where, err)
				reasons[reason(refusal)]++
				continue
			}
			compiled++
			s, err := validator(t, text)
			if err != nil {
				t.Logf("%s: the validator: %v", where, err)
			}
			out := sampled{Where: where, Schema: json.RawMessage(text)}
			for i := range perSchema {
				c, err := m.Clone()
				require.NoError(t, err)
				ids, ended := wander(t, c, w, rand.New(rand.NewPCG(uint64(i), 11)), 4*i, 1000)
				c.Close()
				if !ended {
					open++
					continue
				}
				texts++
				out.Texts = append(out.Texts, w.text(ids))
				if s != nil {
					if err := validate(t, s, w.text(ids)); err != nil && !differs(where, false) {
						t.Errorf("%s: %s\nschema: %s\nsampled: %s", where, oneLine(err), text, w.text(ids))
					}
				}
			}
			for _, c := range g.Tests {
				takes := takes(t, m, w, compact(c.Data))
				switch {
				case c.Valid:
					valid++
					if takes {
						taken++
					}
				case takes && differs(where, true):
					known++
				case takes:
					t.Errorf("%s: %s: takes the invalid %s\nschema: %s", where, c.Description, c.Data, text)
				default:
					invalid++
				}
			}
			m.Close()
			if !differs(where, false) {
				forPython = append(forPython, out)
			}
		}
	}
	t.Logf("%d schemas of %d files: %d compiled, %d refused by name; %d texts sampled, %d without an end; %d invalid instances not taken, %d by known differences; %d of %d valid ones taken",
		total, len(suite), compiled, refused, texts, open, invalid, known, taken, valid)
	require.LessOrEqual(t, known, 60)
	require.Greater(t, compiled, 900)
	for _, r := range slices.Sorted(mapsKeys(reasons)) {
		t.Logf("refused %4d: %s", reasons[r], r)
	}
	validateWithPython(t, forPython)
}

func mapsKeys(m map[string]int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func compact(raw json.RawMessage) string {
	var v any
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return string(raw)
	}
	return marshal(v)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// reason is a refusal without its particulars.
func reason(e *contract.Error) string {
	if strings.HasPrefix(e.Message, "the keyword ") {
		return e.Message
	}
	cut := strings.FieldsFunc(e.Message, func(r rune) bool { return r == '\'' || r == '"' || r == ':' || r == '/' })
	if len(cut) == 0 {
		return e.Message
	}
	return cut[0]
}

const pythonValidator = `
import json, sys
from jsonschema.validators import validator_for
bad = n = 0
for line in sys.stdin:
    case = json.loads(line)
    try:
        v = validator_for(case["schema"])(case["schema"])
    except Exception as e:
        print(case["where"], "schema:", e); bad += 1; continue
    for text in case["texts"] or []:
        n += 1
        try:
            v.validate(json.loads(text))
        except Exception as e:
            bad += 1
            print(case["where"], "text:", text[:200], "error:", str(e).splitlines()[0])
print(n, "texts validated")
sys.exit(bad != 0)
`

func validateWithPython(t *testing.T, cases []sampled) {
	var lines strings.Builder
	enc := json.NewEncoder(&lines)
	for _, c := range cases {
		require.NoError(t, enc.Encode(c))
	}
	cmd := exec.Command(oracleFile("bin/python"), "-c", pythonValidator)
	cmd.Stdin = strings.NewReader(lines.String())
	out, err := cmd.CombinedOutput()
	t.Logf("jsonschema 4.23.0: %s", out)
	var exit *exec.ExitError
	require.False(t, errors.As(err, &exit), "a text is not valid")
	require.NoError(t, err)
}
