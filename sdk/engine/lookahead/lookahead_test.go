package lookahead

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALookupFindsTheLongestRecurringEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		ids    []int32
		want   []int32
		length int
	}{
		"nothing":                   {nil, nil, 0},
		"one token is no match":     {[]int32{5, 1, 2, 5}, nil, 0},
		"two are":                   {[]int32{4, 5, 1, 2, 4, 5}, []int32{1, 2, 4, 5}, 2},
		"the longest, not the last": {[]int32{3, 4, 5, 1, 9, 4, 5, 2, 3, 4, 5}, []int32{1, 9, 4, 5, 2, 3, 4, 5}, 3},
		"of equal ones the last":    {[]int32{4, 5, 1, 4, 5, 2, 4, 5}, []int32{2, 4, 5}, 2},
		"a run of one token":        {[]int32{7, 7, 7, 7}, []int32{7}, 3},
		"from the beginning":        {[]int32{4, 5, 4, 5}, []int32{4, 5}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, length := Lookup(tt.ids)
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.length, length)
		})
	}
}
