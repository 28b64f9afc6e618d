package loader

import (
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// propose picks the entry of the family's graph table that the model's key fits, the generic one last. named bypasses the
// keys; an unknown name is refused with the table.
func propose(desc *cladev1.DescribeResponse, graph, named, fingerprint string, comp *cladev1.Composition) (string, error) {
	table := tableOf(desc, graph)
	if named != "" {
		var ids []string
		for _, e := range table.GetEntries() {
			if e.Id == named {
				return named, nil
			}
			ids = append(ids, e.Id)
		}
		return "", contract.Errorf(contract.InvalidArgument, "graph", "%q is not in the table of %s: %s", named, graph, strings.Join(ids, ", "))
	}
	for _, e := range table.GetEntries() {
		if serves(e.Serves, fingerprint, comp) {
			return e.Id, nil
		}
	}
	return "", contract.Errorf(contract.PluginMismatch, desc.GetName(), "has no graph table for %s", graph)
}

func tableOf(desc *cladev1.DescribeResponse, graph string) *cladev1.GraphTable {
	for _, t := range desc.GetGraphTables() {
		if t.Graph == graph {
			return t
		}
	}
	return nil
}

// serves reports whether every part of a key that is set holds; an empty key serves all.
func serves(key *cladev1.GraphKey, fingerprint string, comp *cladev1.Composition) bool {
	switch {
	case key == nil:
		return true
	case key.Fingerprint != nil && key.GetFingerprint() != fingerprint,
		key.Device != nil && key.GetDevice() != comp.GetDevice(),
		key.MaxRows != nil && max(comp.GetRows(), 1) > key.GetMaxRows(),
		len(key.Kv) > 0 && !slices.Contains(key.Kv, kvName(comp.GetKv())):
		return false
	}
	return true
}

func kvName(kv *cladev1.KvScheme) string {
	if kv.GetPlain() == "" {
		return "native"
	}
	return kv.GetPlain()
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
