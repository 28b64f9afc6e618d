package loader

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// proposal is an entry of a graph table and why it is the one.
type proposal struct{ entry, why string }

// propose picks the entry of the family's graph table that the model's key fits, the generic one last. named bypasses the
// keys; an unknown name is refused with the table.
func propose(desc *cladev1.DescribeResponse, graph, named, fingerprint string, comp *cladev1.Composition) (proposal, error) {
	table := tableOf(desc, graph)
	if named != "" {
		var ids []string
		for _, e := range table.GetEntries() {
			if e.Id == named {
				return proposal{named, "named by the caller, whatever its key"}, nil
			}
			ids = append(ids, e.Id)
		}
		return proposal{}, contract.Errorf(contract.InvalidArgument, "graph", "%q is not in the table of %s: %s", named, graph, strings.Join(ids, ", "))
	}
	var passed []string
	for _, e := range table.GetEntries() {
		why := misfit(e.Serves, fingerprint, comp)
		switch {
		case why != "":
			passed = append(passed, e.Id+" wants "+why)
		case len(passed) > 0:
			return proposal{e.Id, strings.Join(passed, "; ")}, nil
		case keyless(e.Serves):
			return proposal{e.Id, "the table has no other"}, nil
		default:
			return proposal{e.Id, "its key fits"}, nil
		}
	}
	return proposal{}, contract.Errorf(contract.PluginMismatch, desc.GetName(), "has no graph table for %s", graph)
}

func tableOf(desc *cladev1.DescribeResponse, graph string) *cladev1.GraphTable {
	for _, t := range desc.GetGraphTables() {
		if t.Graph == graph {
			return t
		}
	}
	return nil
}

func keyless(key *cladev1.GraphKey) bool {
	return key == nil || proto.Equal(key, &cladev1.GraphKey{})
}

// misfit is the first part of a key that does not hold; empty when all do, as for an empty key.
func misfit(key *cladev1.GraphKey, fingerprint string, comp *cladev1.Composition) string {
	if key == nil {
		return ""
	}
	rows := compose.PhaseRows(comp)
	switch {
	case key.Fingerprint != nil && key.GetFingerprint() != fingerprint:
		return fmt.Sprintf("fingerprint %s, this has %s", key.GetFingerprint(), fingerprint)
	case key.Device != nil && key.GetDevice() != comp.GetDevice():
		return fmt.Sprintf("device %s, this is %s", key.GetDevice(), orOpen(comp.GetDevice()))
	case key.MaxRows != nil && rows > key.GetMaxRows():
		return fmt.Sprintf("at most %d rows, a phase of this has %d", key.GetMaxRows(), rows)
	case len(key.Kv) > 0 && !slices.ContainsFunc(key.Kv, func(k string) bool { return spelling(k) == kvName(comp.GetKv()) }):
		return fmt.Sprintf("KV %s, this has %s", strings.Join(key.Kv, " or "), kvName(comp.GetKv()))
	}
	return ""
}

func orOpen(device string) string {
	if device == "" {
		return "not known yet"
	}
	return device
}

// spelling is a scheme's one spelling; a text that is none stays as it is and equals no scheme.
func spelling(text string) string {
	k, err := family.ParseKV(text)
	if err != nil {
		return text
	}
	return k.String()
}

func kvName(p *cladev1.KvScheme) string {
	k, err := family.KVFromProto(p)
	if err != nil {
		return family.NativeKV // nothing was sent: the model's own
	}
	return k.String()
}

// checkSelfTests refuses a plan that would run a kernel which failed its own comparison with its fallback, or is not there.
func checkSelfTests(desc *cladev1.DescribeResponse, plan *cladev1.Plan) error {
	results := map[string]*cladev1.Kernel{}
	for _, k := range desc.GetKernels() {
		results[k.GetName()] = k
	}
	for _, c := range plan.GetKernels() {
		k := results[c.GetName()]
		broken := k.GetSelfTest() == cladev1.SelfTest_SELF_TEST_FAILED || k.GetSelfTest() == cladev1.SelfTest_SELF_TEST_MISSING
		if c.GetNative() && broken {
			return contract.Errorf(contract.PluginMismatch, desc.GetName(), "would run kernel %s, which cannot: %s", c.GetName(), k.GetReason())
		}
	}
	return nil
}

// checkDisposition holds the plan to what a person required.
func checkDisposition(plan *cladev1.Plan, proposed string, graphRequired bool, kernels string) error {
	if graphRequired && plan.GetGraphEntry() != proposed {
		return contract.Errorf(contract.UnsupportedModelLoad, proposed, "the plugin would run graph %s instead: %s", plan.GetGraphEntry(), plan.GetGraphReason())
	}
	if kernels != "require" {
		return nil
	}
	for _, k := range plan.GetKernels() {
		if !k.GetNative() {
			return contract.Errorf(contract.UnsupportedOption, "kernels", "kernel %s would fall back: %s", k.GetName(), k.GetReason()).
				WithNext("use kernels=auto to accept the fallback")
		}
	}
	return nil
}
