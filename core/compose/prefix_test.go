package compose

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestADiskWithoutAPrefixCacheIsRefused(t *testing.T) {
	in := Input{Model: Model{FloatDType: "bfloat16"}, Declares: all, Wishes: Wishes{PrefixCache: "0", PrefixDisk: 1 << 30, PrefixDiskDir: "/d"}}
	_, err := Resolve(in)
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	require.ErrorContains(t, err, "--prefix-cache")

	in.Wishes.PrefixCache = ""
	c, err := Resolve(in)
	require.NoError(t, err)
	require.EqualValues(t, 1<<30, c.Proto.GetPrefixDiskBytes())
	require.Equal(t, "/d", c.Proto.GetPrefixDiskDir())

	in.Declares = func(path string) bool { return path != "prefix_disk_bytes" }
	_, err = Resolve(in)
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err), "a plugin that has none")
}
