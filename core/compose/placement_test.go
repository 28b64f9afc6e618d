package compose

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestProcessorsAndMemoryNodesAreResolved(t *testing.T) {
	all := func(string) bool { return true }
	field := func(c *Composition, name string) Field {
		for _, f := range c.Fields {
			if f.Name == name {
				return f
			}
		}
		return Field{}
	}
	c, err := Resolve(Input{Declares: all})
	require.NoError(t, err)
	require.Equal(t, Field{"pin", "none", FromDefault}, field(c, "pin"))
	require.Equal(t, Field{"numa", "none", FromDefault}, field(c, "numa"))
	require.Empty(t, c.Proto.Pin)
	require.Nil(t, c.Proto.Numa)

	c, err = Resolve(Input{Declares: all, Wishes: Wishes{Pin: "8,0-2", NUMA: "1"}})
	require.NoError(t, err)
	require.Equal(t, Field{"pin", "8,0-2", FromUser}, field(c, "pin"))
	require.Equal(t, []uint32{8, 0, 1, 2}, c.Proto.Pin)
	require.EqualValues(t, 4, c.Proto.GetThreads(), "a thread for each")
	require.Equal(t, "1", c.Proto.GetNuma())

	c, err = Resolve(Input{Declares: all, Wishes: Wishes{Pin: "0-3", Threads: 2}})
	require.NoError(t, err)
	require.EqualValues(t, 2, c.Proto.GetThreads())

	for _, tt := range []struct {
		wishes Wishes
		says   string
	}{
		{Wishes{Pin: "a"}, `"a" is no processor`},
		{Wishes{Pin: "3-1"}, `"3-1" is no processor`},
		{Wishes{Pin: "0,0"}, "names processor 0 twice"},
		{Wishes{Pin: "0-4294967295"}, "is no processor"},
		{Wishes{Pin: "0-4294967294"}, "more than 1024 processors"},
		{Wishes{Pin: "0-1000,2000-3000"}, "more than 1024 processors"},
		{Wishes{Pin: "0,1", Threads: 3}, "names 2 processors for 3 threads"},
		{Wishes{NUMA: "all"}, `"all" is not none, interleave`},
		{Wishes{NUMA: "-1"}, `"-1" is not none, interleave`},
	} {
		_, err := Resolve(Input{Declares: all, Wishes: tt.wishes})
		require.ErrorContains(t, err, tt.says)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), tt.says)
	}
	_, err = Resolve(Input{Declares: func(path string) bool { return path != "pin" }, Wishes: Wishes{Pin: "0"}})
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err))
}
