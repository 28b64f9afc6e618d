package publish

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"

	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/sdk/contract"
)

// throwawayMark stands in the comment of a key that nobody guards.
const throwawayMark = "clade throwaway key"

// NewKey makes a key pair: path, readable by its user alone, and path with .pub instead of .key.
func NewKey(path, password string, throwaway bool) (minisign.PrivateKey, error) {
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		return private, contract.Errorf(contract.Internal, path, "%w", err)
	}
	text, err := private.MarshalText()
	if err == nil && password != "" {
		text, err = minisign.EncryptKey(password, private)
	}
	if err != nil {
		return private, contract.Errorf(contract.Internal, path, "%w", err)
	}
	comment := "clade signing key"
	if throwaway {
		comment = throwawayMark + ", guarded by nobody"
	}
	_, body, _ := strings.Cut(string(text), "\n")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return private, contract.Errorf(contract.Unavailable, path, "%w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return private, contract.Errorf(contract.InvalidArgument, path, "%w", err)
	}
	_, err = fmt.Fprintf(f, "untrusted comment: %s\n%s\n", comment, strings.TrimSpace(body))
	if err = errors.Join(err, f.Close()); err == nil {
		err = store.Replace(PublicPath(path), fmt.Appendf(nil, "untrusted comment: %s\n%s\n", comment, public))
	}
	if err != nil {
		return private, contract.Errorf(contract.Unavailable, path, "%w", err)
	}
	return private, nil
}

// PublicPath is where the public half of a key file lies.
func PublicPath(path string) string { return strings.TrimSuffix(path, ".key") + ".pub" }

// ReadKey reads a key that NewKey or minisign made. A throwaway key is refused unless the caller wants one, which then need not
// exist yet.
func ReadKey(path, password string, throwaway bool) (minisign.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && throwaway {
		return NewKey(path, "", true)
	}
	if err != nil {
		return minisign.PrivateKey{}, contract.Errorf(contract.NotFound, path, "%w", err).WithNext("`clade plugin publish --new-key FILE` makes a key")
	}
	if comment, _, _ := strings.Cut(string(data), "\n"); strings.Contains(comment, throwawayMark) != throwaway {
		if throwaway {
			return minisign.PrivateKey{}, contract.Errorf(contract.InvalidArgument, path, "is no throwaway key").WithNext("leave --throwaway away")
		}
		return minisign.PrivateKey{}, contract.Errorf(contract.InvalidArgument, path, "is a throwaway key, and a release is not signed with one").
			WithNext("`clade plugin publish --new-key FILE` makes a key to guard")
	}
	var key minisign.PrivateKey
	if !minisign.IsEncrypted(data) {
		err = key.UnmarshalText(data)
	} else if key, err = minisign.DecryptKey(password, data); err != nil {
		return key, contract.Errorf(contract.InvalidArgument, path, "%w", err).WithNext("name a file with its password: --password-file")
	}
	if err != nil {
		return key, contract.Errorf(contract.InvalidArgument, path, "%w", err).WithNext("check that it is a minisign secret key")
	}
	return key, nil
}
