package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/core/serve/anthropic"
	"github.com/clademl/clade/core/serve/openai"
)

// guard refuses what must not reach the APIs, cheapest first.
func (s *Server) guard(next http.Handler) http.Handler {
	machine, _ := os.Hostname() // without a name only literals and localhost are accepted
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowedHost(r.Host, machine, s.o.AllowedHosts) {
			refuse(w, r, http.StatusForbidden, "host_not_allowed", "the Host header names neither this machine nor an allowed host; set serve.allowed_hosts")
			return
		}
		if err := origins.Check(r); err != nil {
			refuse(w, r, http.StatusForbidden, "cross_origin", "a web page of another origin may not use this server")
			return
		}
		if r.URL.Path == "/health" {
			next.ServeHTTP(w, r)
			return
		}
		own := strings.HasPrefix(r.URL.Path, admin.Prefix) // its token is asked for there
		if s.o.APIKey != "" && !own && !sameKey(r, s.o.APIKey) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, r, http.StatusUnauthorized, "invalid_api_key", "the API key is missing or wrong")
			return
		}
		if !s.drain.enter() {
			w.Header().Set("Connection", "close")
			refuse(w, r, http.StatusServiceUnavailable, "unavailable", "the server is stopping")
			return
		}
		defer s.drain.leave()
		r.Body = http.MaxBytesReader(w, r.Body, int64(min(s.o.MaxRequestBytes, 1<<62)))
		if r.ContentLength != 0 {
			r.Body = limitBodyTime(w, r.Body, s.bodyTime)
		}
		next.ServeHTTP(w, r)
	})
}

// refuse answers with a status of HTTP's own in the error shape of the API that the client speaks.
func refuse(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	if anthropic.Speaks(r) {
		anthropic.Refuse(w, status, message)
		return
	}
	openai.Refuse(w, status, code, message)
}

// sameKey compares digests in constant time, so that neither content nor length of the key can be timed.
func sameKey(r *http.Request, key string) bool {
	given := r.Header.Get("X-Api-Key")
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		given = strings.TrimSpace(token)
	}
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(key))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// allowedHost accepts IP literals (a rebound name is never one), localhost, this machine's name and the configured names.
func allowedHost(header, machine string, allowed []string) bool {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	switch {
	case host == "":
		return false
	case net.ParseIP(host) != nil, host == "localhost", strings.HasSuffix(host, ".localhost"):
		return true
	case machine != "" && (host == strings.ToLower(machine) || host == strings.ToLower(machine)+".local"):
		return true
	}
	return slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, host) })
}

// isLoopback reports whether an address to listen on can only be reached from this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// jsonErrors gives the mux's own 404 and 405 the error shape of the client's API.
func jsonErrors(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		probe := &statusOnly{header: http.Header{}}
		mux.ServeHTTP(probe, r)
		if probe.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", probe.header.Get("Allow"))
			refuse(w, r, http.StatusMethodNotAllowed, "method_not_allowed", r.Method+" is not allowed on "+r.URL.Path)
			return
		}
		refuse(w, r, http.StatusNotFound, "not_found", "no such endpoint: "+r.URL.Path)
	})
}

// statusOnly keeps what the mux would have answered.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(p []byte) (int, error) { return len(p), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

// timedBody is a request body whose read deadline is lifted as soon as it has been read: the connection is read on while
// the answer streams, to notice a client that leaves.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func limitBodyTime(w http.ResponseWriter, body io.ReadCloser, limit time.Duration) io.ReadCloser {
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return body // a writer without deadlines, as in a test
	}
	return &timedBody{body, c}
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{}) // it could be set a moment ago; a closed connection has none
	}
	return n, err
}
