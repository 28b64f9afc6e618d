package admin

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clademl/clade/sdk/contract"
)

// State is what a running server tells its user's command lines.
type State struct {
	Pid     int       `json:"pid"`
	URL     string    `json:"url"`
	Token   string    `json:"token"`
	Started time.Time `json:"started"`
}

// NewToken draws a token.
func NewToken() string { return rand.Text() }

// Dir is where this user's servers leave their state files: the session's runtime directory, else ~/.local/state.
func Dir() (string, error) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "clade", "serve"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", contract.Errorf(contract.NotFound, "state", "no home directory: %w", err).WithNext("set HOME or XDG_RUNTIME_DIR")
	}
	return filepath.Join(home, ".local", "state", "clade", "serve"), nil
}

const suffix = ".json"

// Publish writes s into dir and holds the file's lock until remove. The file appears complete and locked, or not at all.
func Publish(dir string, s State) (remove func(), err error) {
	fail := func(err error) (func(), error) {
		return nil, contract.Errorf(contract.Unavailable, dir, "the state file cannot be written: %w", err).
			WithNext("`clade ps` and `clade stop` will not find this server")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fail(err)
	}
	f, err := os.CreateTemp(dir, ".new-*") // made with mode 0600
	if err != nil {
		return fail(err)
	}
	path := filepath.Join(dir, strconv.Itoa(s.Pid)+suffix)
	_, err = f.Write(data)
	if err = errors.Join(err, lock(f)); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		_ = f.Close()
		return fail(err)
	}
	return func() {
		_ = os.Remove(path)
		_ = f.Close()
	}, nil
}

// List reads the state files of dir, in the order of their servers' starts, and removes those whose server is gone.
func List(dir string) ([]State, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, contract.Errorf(contract.Unavailable, dir, "%w", err)
	}
	var out []State
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if s, ok := live(path); ok {
			out = append(out, s)
		} else {
			_ = os.Remove(path)
		}
	}
	sortByStart(out)
	return out, nil
}

// live reads a state file whose server lives.
func live(path string) (s State, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return s, false
	}
	defer func() { _ = f.Close() }()
	if !locked(f) {
		return s, false
	}
	return s, json.NewDecoder(f).Decode(&s) == nil && s.URL != "" && s.Token != ""
}

func sortByStart(list []State) {
	slices.SortFunc(list, func(a, b State) int { return a.Started.Compare(b.Started) })
}
