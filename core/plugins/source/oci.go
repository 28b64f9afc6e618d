package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/sdk/contract"
)

// Media types of an index in a registry: one artifact whose layers are the index, its signature and every archive, so that the
// registry keeps them together.
const (
	typeIndex     = "application/vnd.clade.index.v1+json"
	typeSignature = "application/vnd.clade.index.v1.minisig"
	typeArchive   = "application/vnd.clade.archive.v1.tar+gzip"
	defaultTag    = "index-v1"
)

// oci is a repository of a registry.
type oci struct {
	repo *remote.Repository
	tag  string
}

func openOCI(reference string, o Options) (*oci, error) {
	// An archive's own url may end with its digest.
	reference, _, _ = strings.Cut(reference, "@")
	repo, err := remote.NewRepository(reference)
	if err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, "oci://"+reference, "%w", err)
	}
	tag := repo.Reference.Reference
	if tag == "" {
		tag = defaultTag
	}
	host, _, err := net.SplitHostPort(repo.Reference.Registry)
	if err != nil {
		host = repo.Reference.Registry
	}
	ip := net.ParseIP(host)
	repo.PlainHTTP = host == "localhost" || ip != nil && ip.IsLoopback()
	client := &auth.Client{Client: o.client(), Cache: auth.NewCache()}
	client.SetUserAgent("clade")
	if store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{}); err == nil {
		client.Credential = credentials.Credential(store)
	}
	repo.Client = client
	return &oci{repo, tag}, nil
}

func (s *oci) where() string {
	return "oci://" + s.repo.Reference.Registry + "/" + s.repo.Reference.Repository
}

func (s *oci) failed(what string, err error) error {
	if errors.Is(err, errdef.ErrNotFound) {
		return contract.Errorf(contract.NotFound, s.where(), "has no %s", what)
	}
	return temporary(contract.Errorf(contract.Unavailable, s.where(), "%s: %w", what, err))
}

func (s *oci) Index(ctx context.Context) (raw, signature []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, indexTime)
	defer cancel()
	err = retry(ctx, func() error {
		_, manifest, err := oras.FetchBytes(ctx, s.repo, s.tag, oras.FetchBytesOptions{MaxBytes: index.MaxBytes})
		if err != nil {
			return s.failed("index "+s.tag, err)
		}
		var m ocispec.Manifest
		if err := json.Unmarshal(manifest, &m); err != nil {
			return contract.Errorf(contract.PluginUntrusted, s.where(), "%w", err)
		}
		for _, l := range m.Layers {
			switch l.MediaType {
			case typeIndex:
				raw, err = s.blob(ctx, l, index.MaxBytes)
			case typeSignature:
				signature, err = s.blob(ctx, l, index.MaxSignatureBytes)
			}
			if err != nil {
				return err
			}
		}
		if raw == nil || signature == nil {
			return contract.Errorf(contract.NotFound, s.where(), "%s is no index of plugins", s.tag)
		}
		return nil
	})
	return raw, signature, err
}

func (s *oci) blob(ctx context.Context, d ocispec.Descriptor, limit int64) ([]byte, error) {
	if d.Size > limit {
		return nil, contract.Errorf(contract.PluginUntrusted, s.where(), "its index is larger than %d bytes", limit)
	}
	r, err := s.repo.Blobs().Fetch(ctx, d)
	if err != nil {
		return nil, s.failed("blob "+d.Digest.String(), err)
	}
	defer func() { _ = r.Close() }() // only read
	return limited(r, limit, s.where())
}

// Archive is the blob with the archive's digest, whatever its urls say.
func (s *oci) Archive(ctx context.Context, a index.Archive, offset int64) (io.ReadCloser, int64, error) {
	r, err := s.repo.Blobs().Fetch(ctx, ocispec.Descriptor{
		MediaType: typeArchive, Digest: digest.NewDigestFromEncoded(digest.SHA256, a.SHA256), Size: a.Size,
	})
	if err != nil {
		return nil, 0, s.failed("archive "+a.SHA256, err)
	}
	seeker, ok := r.(io.Seeker)
	if offset == 0 || !ok {
		return r, 0, nil
	}
	if _, err := seeker.Seek(offset, io.SeekStart); err != nil {
		return nil, 0, errors.Join(s.failed("archive "+a.SHA256, err), r.Close())
	}
	return r, offset, nil
}

// Push publishes a folder's index with all its archives in a registry.
func Push(ctx context.Context, dir, location string, o Options) error {
	reference, ok := strings.CutPrefix(location, "oci://")
	if !ok {
		return contract.Errorf(contract.InvalidArgument, location, "want oci://REGISTRY/REPOSITORY")
	}
	s, err := openOCI(reference, o)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(dir, index.File))
	if err != nil {
		return contract.Errorf(contract.NotFound, dir, "%w", err)
	}
	x, err := index.Parse(raw)
	if err != nil {
		return contract.Errorf(contract.InvalidArgument, dir, "%w", err)
	}
	signature, err := os.ReadFile(filepath.Join(dir, index.Signature))
	if err != nil {
		return contract.Errorf(contract.NotFound, dir, "%w", err)
	}
	var layers []ocispec.Descriptor
	for _, small := range []struct {
		media, title string
		data         []byte
	}{{typeIndex, index.File, raw}, {typeSignature, index.Signature, signature}} {
		d, err := oras.PushBytes(ctx, s.repo, small.media, small.data)
		if err != nil {
			return s.failed(small.title, err)
		}
		layers = append(layers, titled(d, small.title))
	}
	for _, a := range x.Archives() {
		d := ocispec.Descriptor{MediaType: typeArchive, Digest: digest.NewDigestFromEncoded(digest.SHA256, a.SHA256), Size: a.Size}
		if err := s.push(ctx, dir, a, d); err != nil {
			return err
		}
		layers = append(layers, titled(d, filepath.Base(a.URLs[0])))
	}
	m, err := oras.PackManifest(ctx, s.repo, oras.PackManifestVersion1_1, typeIndex, oras.PackManifestOptions{
		Layers:              layers,
		ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: x.Created.UTC().Format("2006-01-02T15:04:05Z"), ocispec.AnnotationVersion: fmt.Sprint(x.Serial)},
	})
	if err != nil {
		return s.failed("manifest", err)
	}
	if err := s.repo.Tag(ctx, m, s.tag); err != nil {
		return s.failed("tag "+s.tag, err)
	}
	return nil
}

func titled(d ocispec.Descriptor, title string) ocispec.Descriptor {
	d.Annotations = map[string]string{ocispec.AnnotationTitle: title}
	return d
}

func (s *oci) push(ctx context.Context, dir string, a index.Archive, d ocispec.Descriptor) error {
	there, err := s.repo.Blobs().Exists(ctx, d)
	if err != nil && !errors.Is(err, errdef.ErrNotFound) {
		return s.failed("archive", err)
	}
	if there {
		return nil
	}
	r, _, err := folder{dir: dir}.Archive(ctx, a, 0)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // only read
	if err := s.repo.Blobs().Push(ctx, d, r); err != nil {
		return s.failed("archive", err)
	}
	return nil
}
