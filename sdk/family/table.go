package family

import (
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// CheckTable holds a plugin's graph table to the contract: of a graph that its manifest declares, entries with names of
// their own, and one generic entry, the last. A table that breaks this refuses the plugin.
func (m *Manifest) CheckTable(t *cladev1.GraphTable) error {
	refuse := func(format string, args ...any) error {
		return contract.Errorf(contract.PluginMismatch, t.GetGraph(), format, args...)
	}
	declared := false
	for _, r := range m.Families {
		declared = declared || r.Graph == t.GetGraph()
	}
	if !declared {
		return refuse("graph table of a graph that plugin.yaml does not declare")
	}
	if len(t.GetEntries()) == 0 {
		return refuse("graph table without an entry")
	}
	seen := map[string]bool{}
	for i, e := range t.GetEntries() {
		if e.Id == "" || seen[e.Id] {
			return refuse("entry %q: its id is empty or there twice", e.Id)
		}
		seen[e.Id] = true
		generic := e.Serves == nil || proto.Equal(e.Serves, &cladev1.GraphKey{})
		if generic != (i == len(t.Entries)-1) {
			return refuse("entry %s: exactly one entry has an empty key, and it is last", e.Id)
		}
		for _, k := range e.GetServes().GetKv() {
			if _, err := ParseKV(k); err != nil {
				return refuse("entry %s: %w", e.Id, err)
			}
		}
	}
	return nil
}
