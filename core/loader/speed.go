package loader

import (
	"strings"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// expertParts are found in the names of routed experts' tensors: Hugging Face's and llama.cpp's.
var expertParts = []string{".experts.", "_exps."}

// Speed estimates the tokens a second that decoding reaches with a full context, from a measured read bandwidth: of the plan's
// bytes, or of the file's and the family's geometry where there is none. It is an estimate.
func (d *Decision) Speed(plan *cladev1.Plan, fit *compose.Fit, bytesPerSecond float64) (float64, error) {
	in := compose.SpeedInput{BytesPerSecond: bytesPerSecond}
	var stored, experts int64
	for _, t := range d.Artifact.Tensors() {
		stored += t.Bytes
		for _, part := range expertParts {
			if strings.Contains(t.Name, part) {
				experts += t.Bytes
				break
			}
		}
	}
	in.WeightBytes = stored
	if fit != nil {
		in.KVBytes = fit.KVBytes
	}
	for _, l := range plan.GetLines() {
		switch l.GetName() {
		case "weights":
			in.WeightBytes = int64(l.GetBytes())
		case "kv":
			in.KVBytes = int64(l.GetBytes())
		}
	}
	var err error
	if in.All, in.Used, err = d.Parsed.Experts(); err != nil {
		return 0, err
	}
	if stored > 0 { // experts grow or shrink at load as the rest does
		in.ExpertBytes = int64(float64(experts) * float64(in.WeightBytes) / float64(stored))
	}
	return compose.TokensPerSecond(in), nil
}
