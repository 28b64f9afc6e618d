package artifact

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestFieldsKeepTheFirstError(t *testing.T) {
	c, err := ParseConfig("config.json", []byte(`{"n":3,"list":[1,2],"floats":[1,0.5],"bad":"x","minus":-1,"deep":{"f":2.5},"t":"a","ts":["a","b"],"yes":true}`))
	require.NoError(t, err)
	f := c.Fields()
	require.Equal(t, 3, f.Size("n"))
	require.Equal(t, 0, f.Int("absent"))
	require.Equal(t, []int32{1, 2}, f.Ints("list"))
	require.Equal(t, []float64{1, 0.5}, f.Floats("floats"))
	require.Equal(t, 2.5, f.Float("deep.f"))
	require.Equal(t, "a", f.Text("t"))
	require.Equal(t, []string{"a", "b"}, f.Texts("ts"))
	require.True(t, f.Flag("yes"))
	require.NoError(t, f.Err())

	require.Equal(t, 1, f.Size("absent"), "so that it divides")
	first := f.Err()
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(first))
	require.ErrorContains(t, first, "config.json: absent: must be a positive integer")
	f.Int("bad")
	f.Unsupported("t", "later")
	require.Equal(t, first, f.Err())

	for path, read := range map[string]func(*Fields){
		"bad":    func(f *Fields) { f.Flag("bad") },
		"minus":  func(f *Fields) { f.Int("minus") },
		"list":   func(f *Fields) { f.Float("list") },
		"floats": func(f *Fields) { f.Ints("floats") },
	} {
		f := c.Fields()
		read(f)
		require.ErrorContains(t, f.Err(), path)
	}
}
