package serve

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/serve/openai"
	"github.com/clademl/clade/sdk/artifact/lora"
	"github.com/clademl/clade/sdk/contract"
)

// Adapter is a low-rank adapter of a served model. Clients choose it by its ID in the place of the model's.
type Adapter struct {
	ID, Path string
	Scale    *float64 // nil: 1
	// Given: the model is opened with it; it cannot be unloaded.
	Given bool
}

// chosen is what a request's model name means: a model, perhaps with one of its adapters. A name is a model's, or an adapter's, or a
// part of one model's.
func (r *registry) chosen(name string) (m *served, adapter string, err error) {
	if name == "" || r.find(name) != nil {
		m, err = r.pick(name)
		return m, "", err
	}
	switch owners := r.owners(name); len(owners) {
	case 0:
		if r.former(name) { // the model alone would answer otherwise
			return nil, "", r.unknown(name)
		}
		m, err = r.pick(name)
		return m, "", err
	case 1:
		return owners[0], name, nil
	default:
		return nil, "", contract.Errorf(contract.InvalidArgument, "model", "both %s and %s have an adapter %s", owners[0].name, owners[1].name, name).
			WithNext("name the model, and the adapter in lora")
	}
}

// former says that a model had an adapter of that name, which may be a part of a model's too.
func (r *registry) former(id string) bool {
	return slices.ContainsFunc(r.models, func(m *served) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.had[id]
	})
}

// owners are the models that have an adapter of that name.
func (r *registry) owners(id string) (out []*served) {
	for _, m := range r.models {
		if slices.ContainsFunc(m.adapters(), func(a Adapter) bool { return a.ID == id }) {
			out = append(out, m)
		}
	}
	return out
}

// adapters are those that requests may choose: what the present engine has, or will have when it is opened.
func (m *served) adapters() []Adapter {
	m.mu.Lock()
	e, recorded := m.engine, slices.Concat(m.given, m.added)
	m.mu.Unlock()
	if e != nil {
		return e.Adapters()
	}
	return recorded
}

// cards are the model's and those of its adapters.
func (m *served) cards() []openai.Card {
	card := m.card()
	out := []openai.Card{card}
	for _, a := range m.adapters() {
		out = append(out, adapterCard(card, a.ID))
	}
	return out
}

func adapterCard(base openai.Card, id string) openai.Card {
	return openai.Card{ID: id, Object: base.Object, Created: base.Created, OwnedBy: base.OwnedBy, Parent: base.ID, State: base.State}
}

// adapted is a model whose requests have the adapter that they name in the place of the model.
type adapted struct {
	openai.Model
	id string
}

// choose refuses a second choice beside the name.
func (a adapted) choose(other **string) error {
	if *other != nil {
		return contract.Errorf(contract.InvalidArgument, "lora", "the model's name chooses adapter %s already", a.id).WithNext("name the model itself beside lora")
	}
	*other = &a.id
	return nil
}

// Generate implements openai.Model.
func (a adapted) Generate(ctx context.Context, p generate.Prompt, s generate.Settings, emit func(generate.Delta) error) (generate.Result, error) {
	if err := a.choose(&s.Adapter); err != nil {
		return generate.Result{}, err
	}
	return a.Model.Generate(ctx, p, s, emit)
}

// Embed implements openai.Model.
func (a adapted) Embed(ctx context.Context, q generate.EmbedRequest) (generate.Embeddings, error) {
	if err := a.choose(&q.Adapter); err != nil {
		return generate.Embeddings{}, err
	}
	return a.Model.Embed(ctx, q)
}

// loadAdapter loads one whole into the model of that name, opened if it was not, or changes nothing. Every engine that the model is
// opened with later gets it too.
func (r *registry) loadAdapter(ctx context.Context, model string, a Adapter) error {
	m, err := r.pick(model)
	if err != nil {
		return err
	}
	if other := r.find(a.ID); other != nil {
		return contract.Errorf(contract.InvalidArgument, a.ID, "is the name of a served model").WithNext("choose another name")
	}
	for _, owner := range r.owners(a.ID) {
		return contract.Errorf(contract.InvalidArgument, a.ID, "%s has an adapter of this name already", owner.name).WithNext("unload it, or choose another name")
	}
	for {
		_, release, err := r.lease(ctx, m)
		if err != nil {
			return err
		}
		done, err := m.load(ctx, a)
		release()
		if done || err != nil {
			return err
		}
	}
}

// load loads into the present engine; false when there is none to load into.
func (m *served) load(ctx context.Context, a Adapter) (done bool, err error) {
	m.adapting.Lock()
	defer m.adapting.Unlock()
	e, release := m.join()
	if e == nil {
		return false, nil
	}
	defer release()
	if err := e.LoadAdapter(ctx, a); err != nil {
		return true, err
	}
	m.mu.Lock()
	m.added = append(m.added, a)
	m.had[a.ID] = true
	m.mu.Unlock()
	return true, nil
}

// unloadAdapter takes one away at once for new requests, and returns when the last that has it has ended and its memory is free. An
// empty model is the one that has it.
func (r *registry) unloadAdapter(ctx context.Context, model, id string) error {
	owners := r.owners(id)
	if model != "" {
		m, err := r.pick(model)
		if err != nil {
			return err
		}
		owners = slices.DeleteFunc(owners, func(o *served) bool { return o != m })
	}
	switch len(owners) {
	case 0:
		return contract.Errorf(contract.NotFound, id, "no adapter of this name is loaded").WithNext("GET /v1/models lists them")
	case 1:
		return owners[0].unload(ctx, id)
	}
	return contract.Errorf(contract.InvalidArgument, "model", "both %s and %s have an adapter %s", owners[0].name, owners[1].name, id).WithNext("name the model")
}

func (m *served) unload(ctx context.Context, id string) error {
	m.adapting.Lock()
	m.mu.Lock()
	given := slices.ContainsFunc(m.given, func(a Adapter) bool { return a.ID == id })
	if !given {
		m.added = slices.DeleteFunc(m.added, func(a Adapter) bool { return a.ID == id })
	}
	m.mu.Unlock()
	e, release := m.join() // an engine that is being closed takes it along
	m.adapting.Unlock()
	if e != nil {
		defer release()
	}
	if given {
		return contract.Errorf(contract.InvalidArgument, id, "%s is opened with it", m.name).WithNext("choose %q in requests, or serve the model without it", contract.NoAdapter)
	}
	if e == nil {
		return nil
	}
	return e.UnloadAdapter(ctx, id)
}

// install makes e the present engine, with the adapters that were loaded while m was served. One that cannot be loaded again is
// dropped: the model goes on without it, and requests that choose it are told.
func (r *registry) install(m *served, e Engine, leases int) *tenure {
	m.adapting.Lock()
	defer m.adapting.Unlock()
	m.mu.Lock()
	again := slices.Clone(m.added)
	m.mu.Unlock()
	for _, a := range again {
		err := e.LoadAdapter(r.ctx, a)
		if err == nil || r.ctx.Err() != nil {
			continue
		}
		r.log.Error("adapter is gone", "model", m.name, "adapter", a.ID, "error", err)
		m.mu.Lock()
		m.added = slices.DeleteFunc(m.added, func(other Adapter) bool { return other.ID == a.ID })
		m.mu.Unlock()
	}
	return r.begin(m, e, leases)
}

// adapterFolder is the folder that a client names, inside dir: no link and no ".." leads out of it, and no link in it does.
func adapterFolder(dir, path string) (string, error) {
	outside := func(err error) error {
		e := contract.Errorf(contract.NotFound, "lora_path", "%.200q is no folder inside serve.adapter_dir", path)
		e.Err = err // what is or is not outside of it is nobody's to know
		return e
	}
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", outside(err)
	}
	full := path
	if !filepath.IsAbs(path) {
		full = filepath.Join(root, path)
	}
	real, err := filepath.EvalSymlinks(full)
	if err != nil {
		return "", outside(err)
	}
	if !within(root, real) {
		return "", outside(nil)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return "", outside(err)
	}
	for _, name := range []string{lora.ConfigFile, lora.MLXWeights, lora.PEFTWeights} {
		file := filepath.Join(real, name)
		if _, err := os.Lstat(file); err != nil {
			continue // what an adapter lacks is said when it is read
		}
		if at, err := filepath.EvalSymlinks(file); err != nil || !within(root, at) {
			e := contract.Errorf(contract.NotFound, "lora_path", "%.200q: %s is a link to no file inside serve.adapter_dir", path, name)
			e.Err = err
			return "", e
		}
	}
	return real, nil
}

// within says whether path lies in root; neither has links.
func within(root, path string) bool {
	inside, err := filepath.Rel(root, path)
	return err == nil && inside != ".." && !strings.HasPrefix(inside, ".."+string(filepath.Separator))
}
