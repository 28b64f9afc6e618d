package compose

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestAWindowIsTokensAndWhatIsKeptBeside(t *testing.T) {
	all := func(string) bool { return true }
	for wish, want := range map[string][2]uint32{"": {}, "0": {}, "100": {100, 4}, "100+0": {100, 0}, "7+256": {7, 256}} {
		c, err := Resolve(Input{Wishes: Wishes{KVWindow: wish}, Declares: all})
		require.NoError(t, err)
		require.Equal(t, want, [2]uint32{c.Proto.GetKvWindow(), c.Proto.GetKvKeep()}, wish)
	}
	for _, wish := range []string{"0+4", "-1", "x", "5+", "+5", "5+x", "5+4+3", "99999999999"} {
		_, err := Resolve(Input{Wishes: Wishes{KVWindow: wish}, Declares: all})
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), wish)
		require.ErrorContains(t, err, "kv_window")
	}
	_, err := Resolve(Input{Wishes: Wishes{KVWindow: "100"}, Declares: func(path string) bool { return path != "kv_window" }})
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err))
}
