package loader

import (
	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/core/machine"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// dtypeBytes is the size of a compute dtype's element.
var dtypeBytes = map[string]int64{"float32": 4, "float16": 2, "bfloat16": 2}

// Estimate says what opening the model would take by the family's geometry alone, for a model whose plugin is not there.
// context 0 is the family's default, or the model's own.
func (d *Decision) Estimate(context uint32) (*compose.Fit, error) {
	geometry, err := d.Parsed.Geometry()
	if err != nil {
		return nil, err
	}
	heads, _, err := d.Parsed.Int("num_attention_heads")
	if err != nil {
		return nil, err
	}
	longest, _, err := d.Parsed.Int("max_position_embeddings")
	if err != nil {
		return nil, err
	}
	record := d.Family.Record
	wanted := int64(context)
	for _, other := range []int64{int64(record.Composition.Context), longest, compose.DefaultContext} {
		if wanted == 0 {
			wanted = other
		}
	}
	kv := family.KV{Plain: family.NativeKV}
	if text := record.Composition.KV; text != "" {
		if kv, err = family.ParseKV(text); err != nil {
			return nil, err
		}
	}
	in := compose.FitInput{
		Geometry: geometry, Heads: heads, KV: kv, ElementBytes: dtypeBytes[floatDType(d.Artifact)], Context: wanted, MaxContext: longest,
		BudgetBytes: d.host.Budget,
	}
	if in.ElementBytes == 0 {
		in.ElementBytes = 4
	}
	in.MachineBytes, _ = machine.Memory()
	in.WeightBytes = d.Artifact.Bytes()
	for _, a := range d.Auxiliaries {
		if a.Role == cladev1.Role_ROLE_SIDECAR {
			continue // lies beside the weights, and who takes media is the plugin's to say
		}
		in.AuxiliaryBytes += a.WeightBytes
		if a.Graph != "" {
			draft, err := a.parsed.Geometry()
			if err != nil {
				return nil, err
			}
			in.Draft = append(in.Draft, draft)
		}
	}
	if record.Cache == family.NoCache {
		in.Context, in.MaxContext = 0, 0 // nothing grows: the weights are all
	}
	fit := compose.Estimate(in)
	return &fit, nil
}
