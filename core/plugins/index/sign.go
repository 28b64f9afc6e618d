package index

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"aead.dev/minisign"

	"github.com/clademl/clade/sdk/contract"
)

// ParseKey reads a minisign public key: its text, or a whole .pub file.
func ParseKey(text string) (minisign.PublicKey, error) {
	var k minisign.PublicKey
	if err := k.UnmarshalText([]byte(strings.TrimSpace(text))); err != nil {
		return k, fmt.Errorf("%.80q is not a minisign public key", text)
	}
	return k, nil
}

// KeyID is how a key is called in texts.
func KeyID(id uint64) string { return fmt.Sprintf("%016X", id) }

// KeyName is KeyID of a key's text; the text itself when it is none.
func KeyName(text string) string {
	k, err := ParseKey(text)
	if err != nil {
		return text
	}
	return KeyID(k.ID())
}

// Expected is what a host knows of a source before it reads its index.
type Expected struct {
	// Name is the source's, Keys those that may sign.
	Name string
	Keys []string
	// Serial is the highest that was accepted, SHA256 the digest of that index; zero: none yet.
	Serial uint64
	SHA256 string
	Now    time.Time
	// Release refuses throwaway keys.
	Release bool
}

// Accepted is an index that was verified.
type Accepted struct {
	*Index
	// Key is the public key that signed it, Signer its id, SHA256 the digest of the index's bytes.
	Key, Signer, SHA256 string
}

// Read verifies and parses a downloaded index; where names it in errors, which are PluginUntrusted.
func Read(raw, signature []byte, where string, e Expected) (Accepted, error) {
	refuse := func(next, format string, args ...any) (Accepted, error) {
		return Accepted{}, contract.Errorf(contract.PluginUntrusted, where, format, args...).WithNext("%s", next)
	}
	key, err := verify(raw, signature, e)
	if err != nil {
		return refuse("ask the publisher for the key, then `clade plugin trust add "+e.Name+"`", "%w", err)
	}
	x, err := Parse(raw)
	if err != nil {
		return refuse("a newer host may read it", "%w", err)
	}
	sum := sha256.Sum256(raw)
	got := Accepted{x, key, KeyName(key), hex.EncodeToString(sum[:])}
	switch {
	case x.Name != e.Name:
		return refuse("add it under its own name", "is the index of %s, trusted as %s", x.Name, e.Name)
	case x.Throwaway && e.Release:
		return refuse("sign it with a key that is guarded", "is signed with a throwaway key, which a release of clade refuses")
	case x.Serial < e.Serial:
		return refuse("use the source itself, or a newer copy of it", "has serial %d, and %d was seen before: an old index is offered as the present one", x.Serial, e.Serial)
	case x.Serial == e.Serial && e.SHA256 != "" && got.SHA256 != e.SHA256:
		return refuse("ask the publisher", "has serial %d again with another content", x.Serial)
	case !e.Now.Before(x.Expires):
		return refuse("the publisher has to sign it anew; check this machine's clock too", "expired on %s", x.Expires.Format(time.DateOnly))
	}
	return got, nil
}

func verify(raw, signature []byte, e Expected) (key string, err error) {
	var s minisign.Signature
	if err := s.UnmarshalText(signature); err != nil {
		return "", fmt.Errorf("its signature is malformed")
	}
	var known []string
	for _, text := range e.Keys {
		k, err := ParseKey(text)
		if err != nil {
			return "", err
		}
		if k.ID() != s.KeyID {
			known = append(known, KeyID(k.ID()))
			continue
		}
		if !minisign.Verify(k, raw, signature) {
			return "", fmt.Errorf("its signature does not fit its content (key %s)", KeyID(s.KeyID))
		}
		return text, nil
	}
	slices.Sort(known)
	return "", fmt.Errorf("is signed with key %s, which is not trusted for source %s (trusted: %s)", KeyID(s.KeyID), e.Name, strings.Join(known, ", "))
}

// Sign is the detached signature of an index's bytes.
func Sign(key minisign.PrivateKey, raw []byte, x *Index) []byte {
	comment := fmt.Sprintf("clade index %s serial %d", x.Name, x.Serial)
	return minisign.SignWithComments(key, raw, comment, "signature of "+File)
}
