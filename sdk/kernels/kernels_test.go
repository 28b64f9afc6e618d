package kernels

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

type fakeLibrary map[string]error

func (l fakeLibrary) Has(name string) bool       { _, ok := l[name]; return ok }
func (l fakeLibrary) SelfTest(name string) error { return l[name] }

func TestEveryFallbackHasAReason(t *testing.T) {
	r := NewRegistry(Kernel{Name: "a", Fallback: "stock matmul"}, Kernel{Name: "b", Fallback: "stock matmul"}, Kernel{Name: "c", Fallback: "stock matmul"})
	tests := []struct {
		name     string
		registry Registry
		state    cladev1.SelfTest
		reason   string
	}{
		{"before a runtime", r, cladev1.SelfTest_SELF_TEST_NOT_RUN, "no runtime is loaded yet"},
		{"no library", r.Without("the runtime has no libcladekernels"), cladev1.SelfTest_SELF_TEST_MISSING, "the runtime has no libcladekernels"},
		{"lacking", r.With(fakeLibrary{"b": nil}), cladev1.SelfTest_SELF_TEST_MISSING, "the runtime's libcladekernels does not have it"},
		{"failing", r.With(fakeLibrary{"a": errors.New("off by 2")}), cladev1.SelfTest_SELF_TEST_FAILED, "off by 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := tt.registry.Describe()[0]
			require.Equal(t, tt.state, d.SelfTest)
			require.Equal(t, tt.reason, d.Reason)
			choice := tt.registry.Choose("a")
			require.Len(t, choice, 1)
			require.False(t, choice[0].Native)
			require.Equal(t, tt.reason+"; stock matmul", choice[0].Reason)
		})
	}
}

func TestAPassingKernelRuns(t *testing.T) {
	r := NewRegistry(Kernel{Name: "a", Fallback: "stock matmul"}).With(fakeLibrary{"a": nil})
	require.Equal(t, []*cladev1.KernelChoice{{Name: "a", Native: true}}, r.Choose("a", "unknown"))
}
