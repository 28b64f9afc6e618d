//go:build full

package publish

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// minisign's key derivation takes a gigabyte and seconds, as it should.
func TestAKeyWithAPasswordNeedsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k.key")
	made, err := NewKey(path, "secret", false)
	require.NoError(t, err)
	_, err = ReadKey(path, "wrong", false)
	require.ErrorContains(t, err, "--password-file")
	again, err := ReadKey(path, "secret", false)
	require.NoError(t, err)
	require.True(t, made.Equal(again))
}
