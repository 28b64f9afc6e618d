package source

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/sdk/contract"
)

// Source is a place that has an index and archives.
type Source interface {
	// Index brings the index and its signature, unverified.
	Index(ctx context.Context) (raw, signature []byte, err error)
	// Archive opens an archive behind its first offset bytes; from is where the reader really begins, 0 when the place cannot
	// seek.
	Archive(ctx context.Context, a index.Archive, offset int64) (r io.ReadCloser, from int64, err error)
}

// Options of opening a source; the zero value is ready.
type Options struct {
	// Client of web servers and registries; nil: one with this process's proxy settings.
	Client *http.Client
}

func (o Options) client() *http.Client {
	if o.Client != nil {
		return o.Client
	}
	return defaultClient
}

// Open finds the kind of place that a location names. Nothing is contacted yet.
func Open(location string, o Options) (Source, error) {
	scheme, rest, has := strings.Cut(location, "://")
	switch {
	case location == "":
		return nil, contract.Errorf(contract.InvalidArgument, "source", "no location").WithNext("a folder, https://..., oci://..., or a bundle's file")
	case has && scheme == "oci":
		return openOCI(rest, o)
	case has && (scheme == "https" || scheme == "http"):
		return openWeb(location, o)
	case has && scheme == "file":
		u, err := url.Parse(location)
		if err != nil || u.Host != "" && u.Host != "localhost" {
			return nil, contract.Errorf(contract.InvalidArgument, location, "is not a file:// location")
		}
		return openLocal(u.Path, o)
	case has:
		return nil, contract.Errorf(contract.InvalidArgument, location, "no such kind of source").WithNext("a folder, https://..., oci://..., or a bundle's file")
	}
	return openLocal(location, o)
}

func openLocal(path string, o Options) (Source, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, contract.Errorf(contract.NotFound, path, "%w", err)
	}
	info, err := os.Stat(abs)
	switch {
	case err != nil:
		return nil, contract.Errorf(contract.NotFound, abs, "no such folder or bundle: %w", err)
	case info.IsDir():
		return folder{abs, o}, nil
	}
	return openBundle(abs)
}

// limited reads all of r, at most limit bytes.
func limited(r io.Reader, limit int64, what string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, contract.Errorf(contract.Unavailable, what, "%w", err)
	}
	if int64(len(data)) > limit {
		return nil, contract.Errorf(contract.PluginUntrusted, what, "is larger than %d bytes", limit)
	}
	return data, nil
}

// byURL opens an archive by urls that are not relative; relative ones go to local.
func byURL(ctx context.Context, a index.Archive, offset int64, o Options, local func(name string) (io.ReadCloser, int64, error)) (io.ReadCloser, int64, error) {
	var errs []error
	for _, u := range a.URLs {
		r, from, err := one(ctx, u, a, offset, o, local)
		if err == nil {
			return r, from, nil
		}
		if ctx.Err() != nil {
			return nil, 0, err
		}
		errs = append(errs, err)
	}
	// The last is a mirror's as a rule; the first is the one to tell.
	return nil, 0, errs[0]
}

func one(ctx context.Context, u string, a index.Archive, offset int64, o Options, local func(string) (io.ReadCloser, int64, error)) (io.ReadCloser, int64, error) {
	scheme, rest, absolute := strings.Cut(u, "://")
	switch {
	case !absolute:
		return local(u)
	case scheme == "https" || scheme == "http":
		if err := reachable(u); err != nil {
			return nil, 0, err
		}
		return get(ctx, o.client(), u, offset)
	case scheme == "oci":
		s, err := openOCI(rest, o)
		if err != nil {
			return nil, 0, err
		}
		return s.Archive(ctx, a, offset)
	}
	return nil, 0, contract.Errorf(contract.PluginUntrusted, u, "an index may name relative, https:// and oci:// urls only")
}
