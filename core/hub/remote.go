package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/clademl/clade/sdk/contract"
)

// DefaultEndpoint is the hub that is asked when HF_ENDPOINT names none.
const DefaultEndpoint = "https://huggingface.co"

// Limits of what a hub may answer.
const (
	maxListing   = 32 << 20
	maxFiles     = 20_000
	maxFileName  = 512
	maxErrorBody = 4 << 10
)

// Remote is a hub: the Hugging Face API over plain HTTP.
type Remote struct {
	// Endpoint is the address of the hub, without a path of its own as a rule.
	Endpoint string
	// Token is sent to the endpoint's own host and no other, and never in clear text over a network.
	Token string
	// Offline refuses every request.
	Offline bool
	Client  *http.Client
	// Stall is how long a download may bring nothing before it is tried again; zero: 30 s.
	Stall time.Duration
	// Pause is the first wait between two attempts, which doubles; zero: 500 ms.
	Pause time.Duration
}

// RemoteFromEnv is the hub that the Hugging Face tools would use: HF_ENDPOINT, HF_TOKEN or the token file, HF_HUB_OFFLINE.
func RemoteFromEnv() (*Remote, error) {
	r := &Remote{Endpoint: strings.TrimRight(os.Getenv("HF_ENDPOINT"), "/"), Token: strings.TrimSpace(os.Getenv("HF_TOKEN"))}
	if r.Endpoint == "" {
		r.Endpoint = DefaultEndpoint
	}
	if v := os.Getenv("HF_HUB_OFFLINE"); v != "" {
		r.Offline = v == "1" || strings.EqualFold(v, "true") || strings.EqualFold(v, "yes") || strings.EqualFold(v, "on")
	}
	if r.Token == "" && os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN") == "" {
		r.Token = tokenFile()
	}
	return r, r.check()
}

func (r *Remote) check() error {
	u, err := url.Parse(r.Endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return contract.Errorf(contract.InvalidArgument, "HF_ENDPOINT", "%q is not an http or https address", r.Endpoint)
	}
	if r.Token != "" && u.Scheme == "http" && !loopback(u.Hostname()) {
		return contract.Errorf(contract.InvalidArgument, "HF_ENDPOINT", "%s is not encrypted and a token is set, which would be readable on the way", r.Endpoint).
			WithNext("use https, or unset HF_TOKEN")
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tokenFile is the token that the hub's own login command stored.
func tokenFile() string {
	at := os.Getenv("HF_TOKEN_PATH")
	if at == "" {
		home := os.Getenv("HF_HOME")
		if home == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return ""
			}
			home = filepath.Join(user, ".cache", "huggingface")
		}
		at = filepath.Join(home, "token")
	}
	data, err := os.ReadFile(at)
	if err != nil || len(data) > 4096 {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// File is one file of a repository.
type File struct {
	Path string
	Size int64
	// SHA256 of the content when the hub stores it as a large file; else GitSHA1 is the hash of its git blob.
	SHA256, GitSHA1 string
}

// etag is the file's name among the cache's blobs.
func (f File) etag() string {
	if f.SHA256 != "" {
		return f.SHA256
	}
	return f.GitSHA1
}

// Repository is one revision of a model repository.
type Repository struct {
	ID, Revision, Commit string
	Files                []File
}

// Repository asks for a revision of ORG/NAME: a branch, a tag or a commit.
func (r *Remote) Repository(ctx context.Context, id, revision string) (Repository, error) {
	if err := checkRepoID(id); err != nil {
		return Repository{}, err
	}
	if !safeRevision(revision) {
		return Repository{}, contract.Errorf(contract.InvalidArgument, "revision", "%q is not a branch, tag or commit", revision)
	}
	body, err := r.listing(ctx, id, revision)
	if err != nil {
		return Repository{}, err
	}
	return readListing(id, revision, body)
}

func (r *Remote) listing(ctx context.Context, id, revision string) ([]byte, error) {
	at := r.Endpoint + "/api/models/" + id + "/revision/" + url.PathEscape(revision) + "?blobs=true"
	var body []byte
	err := r.patiently(ctx, id, func() error {
		resp, err := r.get(ctx, at, "")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return r.refused(resp, id)
		}
		body, err = io.ReadAll(io.LimitReader(resp.Body, maxListing+1))
		return err
	})
	if err == nil && len(body) > maxListing {
		err = contract.Errorf(contract.ArtifactCorrupt, id, "the hub's listing is over %d MB", maxListing>>20)
	}
	return body, err
}

// readListing checks what the hub says: names, sizes and hashes are untrusted.
func readListing(id, revision string, body []byte) (Repository, error) {
	var in struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name   string `json:"rfilename"`
			Size   *int64 `json:"size"`
			BlobID string `json:"blobId"`
			LFS    *struct {
				SHA256 string `json:"sha256"`
				Size   int64  `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	corrupt := func(format string, args ...any) (Repository, error) {
		return Repository{}, contract.Errorf(contract.ArtifactCorrupt, id, "the hub's listing: "+format, args...)
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return corrupt("%w", err)
	}
	if !isHex(in.SHA, 40) {
		return corrupt("%.60q is not a commit", in.SHA)
	}
	if len(in.Siblings) > maxFiles {
		return corrupt("names %d files, at most %d are taken", len(in.Siblings), maxFiles)
	}
	out := Repository{ID: id, Revision: revision, Commit: in.SHA}
	seen := map[string]bool{}
	for _, s := range in.Siblings {
		f := File{Path: s.Name, GitSHA1: s.BlobID}
		if s.Size != nil {
			f.Size = *s.Size
		}
		if s.LFS != nil {
			f.SHA256, f.Size = s.LFS.SHA256, s.LFS.Size
		}
		switch {
		case !safeName(f.Path):
			return corrupt("%.100q is not a file name", f.Path)
		case seen[f.Path]:
			return corrupt("%s is there twice", f.Path)
		case f.Size < 0 || (s.Size == nil && s.LFS == nil):
			return corrupt("%s has no size", f.Path)
		case f.SHA256 != "" && !isHex(f.SHA256, 64), f.SHA256 == "" && !isHex(f.GitSHA1, 40):
			return corrupt("%s has no digest", f.Path)
		}
		seen[f.Path] = true
		out.Files = append(out.Files, f)
	}
	return out, nil
}

// checkRepoID wants ORG/NAME as the hub allows it.
func checkRepoID(id string) error {
	org, name, ok := strings.Cut(id, "/")
	if !ok || !safePart(org) || !safePart(name) || strings.Contains(name, "--") || strings.Contains(org, "--") {
		return contract.Errorf(contract.InvalidArgument, id, "is not a hub model").WithNext("write ORG/NAME, ORG/NAME:QUANT or ORG/NAME/FILE.gguf")
	}
	return nil
}

func safePart(s string) bool {
	if s == "" || len(s) > 96 || s[0] == '.' || s[0] == '-' {
		return false
	}
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

func safeRevision(s string) bool { return s != "" && len(s) <= 256 && safeName(s) }

// safeName is a relative slash path that stays below where it begins, on every system.
func safeName(s string) bool {
	if s == "" || len(s) > maxFileName || strings.ContainsAny(s, "\\:\x00") || !filepath.IsLocal(filepath.FromSlash(s)) || path.Clean(s) != s {
		return false
	}
	for _, c := range s {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// get sends one request. The token goes with it; Go's client drops it when a redirect leaves the host.
func (r *Remote) get(ctx context.Context, at, byteRange string) (*http.Response, error) {
	if r.Offline {
		return nil, contract.Errorf(contract.Unavailable, "hub", "is not asked: offline").WithNext("unset HF_HUB_OFFLINE, or leave out --offline")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, "hub", "%w", err)
	}
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	if byteRange != "" {
		req.Header.Set("Range", byteRange)
	}
	req.Header.Set("Accept-Encoding", "identity") // a digest is of the bytes as stored
	client := r.Client
	if client == nil {
		client = http.DefaultClient
	}
	return client.Do(req)
}

// busy is an answer that may change by itself.
type busy struct {
	err   error
	after time.Duration
}

func (b *busy) Error() string { return b.err.Error() }
func (b *busy) Unwrap() error { return b.err }

// refused is the error of an answer that is not the file.
func (r *Remote) refused(resp *http.Response, subject string) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	said := resp.Header.Get("X-Error-Message")
	if said == "" {
		said = strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "?")), " ")
	}
	if len(said) > 200 {
		said = said[:200] + "..."
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		e := contract.Errorf(contract.NotFound, subject, "the hub refuses it (%d): %s", resp.StatusCode, said)
		if r.Token == "" {
			return e.WithNext("if it is private or gated, accept its terms there and set HF_TOKEN")
		}
		return e.WithNext("check that the token may read it and that its terms are accepted")
	case http.StatusNotFound:
		return contract.Errorf(contract.NotFound, subject, "the hub at %s has no such model, revision or file", r.Endpoint).WithNext("check the name")
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return &busy{fmt.Errorf("the hub answers %d: %s", resp.StatusCode, said), min(time.Duration(max(seconds, 0))*time.Second, time.Minute)}
	}
	return contract.Errorf(contract.Unavailable, subject, "the hub answers %d: %s", resp.StatusCode, said)
}

// attempts is how often something that may pass is tried without any progress between.
const attempts = 6

// patiently tries fn again while its error may pass: a busy hub, a broken or stalled connection.
func (r *Remote) patiently(ctx context.Context, subject string, fn func() error) error {
	pause := r.Pause
	if pause == 0 {
		pause = 500 * time.Millisecond
	}
	var err error
	for n := range attempts {
		if err = fn(); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return contract.Errorf(contract.Cancelled, subject, "%w", context.Cause(ctx))
		}
		var final *contract.Error
		if errors.As(err, &final) {
			return err
		}
		wait := pause << n
		var b *busy
		if errors.As(err, &b) {
			wait = max(wait, b.after)
		}
		if n+1 == attempts {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return contract.Errorf(contract.Cancelled, subject, "%w", context.Cause(ctx))
		}
	}
	return contract.Errorf(contract.Unavailable, subject, "given up after %d attempts: %w", attempts, err).WithNext("run the same command again: what came is kept")
}
