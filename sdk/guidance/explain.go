package guidance

import (
	"errors"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/clademl/clade/sdk/contract"
)

// Looking for the place of a problem takes at most so many compilations and so long.
const (
	maxProbes = 400
	probeTime = time.Second
)

// unimplemented is how llguidance lists keywords.
var unimplemented = regexp.MustCompile(`^Unimplemented keys: \["([^"]+)"`)

// processing is how llguidance names a definition, by the reference to it.
var processing = regexp.MustCompile(` while processing (?:json-schema:///)?(#\S*)$`)

var errFound = errors.New("found")

// explain says where in a schema llguidance's problem is: the keyword that it names, or the innermost schema that has the same
// problem alone.
func (v *Vocabulary) explain(g Grammar, problem string) error {
	root := g.schema.(map[string]any)
	if m := unimplemented.FindStringSubmatch(problem); m != nil {
		place := v.place(root, problem, func(schema map[string]any) bool {
			_, has := schema[m[1]]
			return has
		})
		return at(place+"/"+escape(m[1]), "the keyword %s is not supported in constrained decoding", m[1])
	}
	kind, message := contract.UnsupportedOption, problem
	if strings.HasPrefix(problem, "oneOf ") { // its words name an option that approximates
		message = "oneOf whose branches may overlap is not supported in constrained decoding; use anyOf"
	}
	if strings.Contains(problem, "Unsatisfiable") {
		kind = contract.InvalidArgument
	}
	if m := processing.FindStringSubmatch(problem); m != nil {
		return contract.Errorf(kind, schemaSubject+m[1], "%s", strings.TrimSuffix(problem, m[0]))
	}
	place := v.place(root, problem, func(map[string]any) bool { return true })
	return contract.Errorf(kind, schemaSubject+place, "%s", message)
}

// place is the pointer of the innermost schema that passes and has the problem alone; "#" when none has.
func (v *Vocabulary) place(root map[string]any, problem string, passes func(map[string]any) bool) string {
	found, probes, until := "#", 0, time.Now().Add(probeTime)
	first := ""
	_ = eachSchema(root, func(pointer string, schema map[string]any) error {
		if !passes(schema) {
			return nil
		}
		if first == "" {
			first = pointer
		}
		if probes++; probes > maxProbes || time.Now().After(until) {
			return errFound
		}
		// A place within the last one, or a later one while none was found.
		if found != "#" && !strings.HasPrefix(pointer, found+"/") {
			return nil
		}
		if pointer != "#" && v.problemOf(root, schema) == problem {
			found = pointer
		}
		return nil
	})
	if found == "#" && first != "" { // none has it alone, where a reference leads nowhere
		return first
	}
	return found
}

// problemOf compiles one schema of root, with root's definitions.
func (v *Vocabulary) problemOf(root, schema map[string]any) string {
	alone := maps.Clone(schema)
	for _, key := range []string{"$schema", "$id", "$defs", "definitions"} {
		if value, ok := root[key]; ok {
			alone[key] = value
		}
	}
	text := marshal(alone)
	g, err := readSchema(text, false)
	if err != nil {
		return ""
	}
	return v.problem(g)
}
