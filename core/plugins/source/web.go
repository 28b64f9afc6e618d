package source

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/sdk/contract"
)

// defaultClient takes proxies from the environment (HTTPS_PROXY, NO_PROXY). A body has no time limit; Download watches it.
var defaultClient = &http.Client{Transport: &http.Transport{
	Proxy:               http.ProxyFromEnvironment,
	DialContext:         (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
	TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: 30 * time.Second,
	ForceAttemptHTTP2: true,
}}

// web is a folder on a web server.
type web struct {
	base *url.URL // ends with a slash
	o    Options
}

func openWeb(location string, o Options) (Source, error) {
	location = strings.TrimSuffix(location, index.File)
	if !strings.HasSuffix(location, "/") {
		location += "/"
	}
	u, err := url.Parse(location)
	if err != nil || u.Host == "" {
		return nil, contract.Errorf(contract.InvalidArgument, location, "is not a url")
	}
	return web{u, o}, reachable(location)
}

// reachable refuses http to other machines: the signature holds what comes, but not who reads along.
func reachable(location string) error {
	u, err := url.Parse(location)
	if err != nil || u.Host == "" {
		return contract.Errorf(contract.InvalidArgument, location, "is not a url")
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return contract.Errorf(contract.InvalidArgument, location, "http is for this machine only").WithNext("use https")
	}
	return nil
}

func (w web) Index(ctx context.Context) (raw, signature []byte, err error) {
	if raw, err = w.read(ctx, index.File, index.MaxBytes); err != nil {
		return nil, nil, err
	}
	signature, err = w.read(ctx, index.Signature, index.MaxSignatureBytes)
	return raw, signature, err
}

// indexTime bounds the fetch of an index.
const indexTime = time.Minute

func (w web) read(ctx context.Context, name string, limit int64) (data []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, indexTime)
	defer cancel()
	err = retry(ctx, func() error {
		r, _, err := get(ctx, w.o.client(), w.base.JoinPath(name).String(), 0)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }() // only read
		data, err = limited(r, limit, w.base.JoinPath(name).String())
		return err
	})
	return data, err
}

func (w web) Archive(ctx context.Context, a index.Archive, offset int64) (io.ReadCloser, int64, error) {
	return byURL(ctx, a, offset, w.o, func(name string) (io.ReadCloser, int64, error) {
		ref, err := url.Parse(name)
		if err != nil {
			return nil, 0, contract.Errorf(contract.PluginUntrusted, name, "is not a url")
		}
		return get(ctx, w.o.client(), w.base.ResolveReference(ref).String(), offset)
	})
}

// get asks for a file behind its first offset bytes.
func get(ctx context.Context, client *http.Client, location string, offset int64) (io.ReadCloser, int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, location, nil)
	if err != nil {
		return nil, 0, contract.Errorf(contract.InvalidArgument, location, "%w", err)
	}
	req.Header.Set("Accept-Encoding", "identity") // the bytes that were hashed
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, temporary(contract.Errorf(contract.Unavailable, location, "%w", err))
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return resp.Body, 0, nil
	case http.StatusPartialContent:
		var from int64
		if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-", &from); err == nil && from == offset {
			return resp.Body, from, nil
		}
		_ = resp.Body.Close()
		return get(ctx, client, location, 0)
	case http.StatusRequestedRangeNotSatisfiable:
		_ = resp.Body.Close()
		return get(ctx, client, location, 0)
	}
	_ = resp.Body.Close()
	kind := contract.Unavailable
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone {
		kind = contract.NotFound
	}
	err = contract.Errorf(kind, location, "the server answers %s", resp.Status)
	if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests {
		err = temporary(err)
	}
	return nil, 0, err
}
