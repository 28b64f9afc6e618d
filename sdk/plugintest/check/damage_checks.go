package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func (s *subject) checkBadArtifacts(ctx context.Context) error {
	if err := s.model(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "clade-check-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cases, err := s.damages(dir)
	if err != nil {
		return err
	}
	return each(cases, func(d damage) error {
		p, err := s.process(ctx)
		if err != nil {
			return err
		}
		defer p.kill()
		spec := s.with(func(m *cladev1.ModelSpec) { m.Artifacts[0].Path = d.path })
		plan, err := s.plan(ctx, p, spec)
		if err == nil {
			_, err = s.load(ctx, p, spec, plan, nil)
		}
		if dead := p.alive(); dead != nil {
			return fmt.Errorf("a model with %s: %w", d.what, dead)
		}
		kinds := []contract.Kind{contract.ArtifactCorrupt, contract.NotFound, contract.InvalidArgument, contract.UnsupportedModel, contract.PluginMismatch}
		if wrong := refusal(err, kinds, ""); wrong != nil {
			return fmt.Errorf("a model with %s %w", d.what, wrong)
		}
		return p.health(ctx)
	})
}

// damage is a model that something is wrong with.
type damage struct{ what, path string }

// damages makes sparse copies of the model below dir: headers and configs are real, the payload is zero.
func (s *subject) damages(dir string) ([]damage, error) {
	files, err := s.weightFiles()
	if err != nil {
		return nil, err
	}
	var victim string
	for path := range files {
		if victim == "" || path < victim {
			victim = path
		}
	}
	header := files[victim]
	out := []damage{{"no files", filepath.Join(dir, "nothing")}}
	cases := []struct {
		what string
		harm func(path string, size int64) error
	}{
		{"a file that ends in its payload", func(path string, size int64) error { return os.Truncate(path, header+(size-header)/2) }},
		{"a file that ends in its header", func(path string, _ int64) error { return os.Truncate(path, header/2) }},
		{"an empty file", func(path string, _ int64) error { return os.Truncate(path, 0) }},
		{"garbage where the header begins", func(path string, _ int64) error {
			return overwrite(path, 0, []byte("\xff\xff\xff\xff\xff\xff\xff\x7f"))
		}},
		{"a tensor under another name", func(path string, _ int64) error { return s.rename(path, header) }},
	}
	for i, c := range cases {
		root := filepath.Join(dir, fmt.Sprint(i))
		path, err := s.copySparse(root, victim, header)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if err := c.harm(path, info.Size()); err != nil {
			return nil, err
		}
		if s.artifact.Format == artifact.GGUF {
			root = path
		}
		out = append(out, damage{c.what, root})
	}
	return out, nil
}

// copySparse copies the model's folder with victim in sparse form, and gives victim's new path.
func (s *subject) copySparse(root, victim string, header int64) (string, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	from := filepath.Dir(victim)
	entries, err := os.ReadDir(from)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		name := e.Name()
		info, err := os.Stat(filepath.Join(from, name))
		if err != nil || !info.Mode().IsRegular() || name == filepath.Base(victim) || s.artifact.Format == artifact.GGUF {
			continue
		}
		if err := os.Symlink(filepath.Join(from, name), filepath.Join(root, name)); err != nil {
			return "", err
		}
	}
	f, err := os.Open(victim)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, header)
	if _, err := f.ReadAt(head, 0); err != nil {
		return "", err
	}
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, filepath.Base(victim))
	if err := os.WriteFile(path, head, 0o600); err != nil {
		return "", err
	}
	return path, os.Truncate(path, info.Size())
}

func overwrite(path string, at int64, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, at)
	return errors.Join(err, f.Close())
}

// rename changes one letter of the largest tensor's name in the header: no model does without that one.
func (s *subject) rename(path string, header int64) error {
	name := ""
	var most int64
	for _, t := range s.artifact.Tensors() {
		if filepath.Base(path) == t.File && t.Bytes > most {
			name, most = t.Name, t.Bytes
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, header)
	if _, err := f.ReadAt(head, 0); err != nil {
		return err
	}
	at := bytes.Index(head, []byte(name))
	if name == "" || at < 0 {
		return fmt.Errorf("%s: the name %q is not in the header", path, name)
	}
	letter := byte('x')
	if name[0] == letter {
		letter = 'y'
	}
	return overwrite(path, int64(at), []byte{letter})
}
