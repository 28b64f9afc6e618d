package loader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func TestSpeedIsBandwidthByWhatATokenReads(t *testing.T) {
	d, err := hostOf(t, newFake()).Decide(tinyModel(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	stored := int64(0)
	for _, tensor := range d.Artifact.Tensors() {
		stored += tensor.Bytes
	}
	got, err := d.Speed(nil, &compose.Fit{KVBytes: stored}, 1e9)
	require.NoError(t, err)
	require.InDelta(t, 1e9/float64(2*stored)*0.82, got, 1e-6, "of the file and the geometry")
	got, err = d.Speed(&cladev1.Plan{Lines: []*cladev1.MemoryLine{{Name: "weights", Bytes: 3e6}, {Name: "kv", Bytes: 1e6}, {Name: "process", Bytes: 1e9}}}, nil, 1e9)
	require.NoError(t, err)
	require.InDelta(t, 1e9/4e6*0.82, got, 1e-6, "of the plan")
}
