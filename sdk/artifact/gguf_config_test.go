package artifact

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGGUFRopeScalingIsLinearWhereNoTypeIsNamed(t *testing.T) {
	for name, tt := range map[string]struct{ said, want map[string]any }{
		"nothing":            {map[string]any{}, nil},
		"none":               {map[string]any{"a.rope.scaling.type": "none", "a.rope.scaling.factor": 4.0}, nil},
		"a factor":           {map[string]any{"a.rope.scaling.factor": 4.0}, map[string]any{"rope_type": "linear", "factor": 4.0}},
		"an older factor":    {map[string]any{"a.rope.scale_linear": 2.0}, map[string]any{"rope_type": "linear", "factor": 2.0}},
		"both":               {map[string]any{"a.rope.scale_linear": 2.0, "a.rope.scaling.factor": 4.0}, map[string]any{"rope_type": "linear", "factor": 4.0}},
		"linear by nothing":  {map[string]any{"a.rope.scaling.type": "linear"}, map[string]any{"rope_type": "default"}},
		"linear by zero":     {map[string]any{"a.rope.scaling.factor": 0.0}, map[string]any{"rope_type": "default", "factor": 0.0}},
		"divisors elsewhere": {map[string]any{"a.rope.scaling.attn_factor": 1.2}, map[string]any{"rope_type": "default", "attention_factor": 1.2}},
		"yarn": {
			map[string]any{"a.rope.scaling.type": "yarn", "a.rope.scaling.factor": 4.0, "a.rope.scaling.yarn_log_multiplier": 1.0},
			map[string]any{"rope_type": "yarn", "factor": 4.0, "mscale_all_dim": 1.0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, (&GGUFMetadata{values: tt.said}).ropeScaling("a"))
		})
	}
}

func TestGGUFWindowsAreAPeriodOrAFlagForEachLayer(t *testing.T) {
	const key = "a.attention.sliding_window_pattern"
	types := map[string]any{"layer_types": []any{"sliding_attention", "full_attention"}}
	for name, tt := range map[string]struct {
		said any
		want map[string]any
	}{
		"absent":  {nil, map[string]any{}},
		"period":  {int64(6), map[string]any{"sliding_window_pattern": int64(6)}},
		"flags":   {[]bool{true, false}, types},
		"numbers": {[]int64{1, 0}, types},
	} {
		t.Run(name, func(t *testing.T) {
			tree := map[string]any{}
			(&GGUFMetadata{values: map[string]any{key: tt.said}}).slides(tree, "a")
			require.Equal(t, tt.want, tree)
		})
	}
}
