package echo

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/artifact/lora"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// An adapter changes the one module of an echo, which has as many channels. What it does is a word of its digest: states behind a token
// depend on it too.
const (
	adapterModule = "state"
	adapterWidth  = 8
)

// WriteAdapter writes an adapter of echo models into dir, which it makes, as mlx-lm stores one.
func WriteAdapter(dir string, seed uint64) error {
	const rank = 2
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	config := map[string]any{"fine_tune_type": "lora", "lora_parameters": map[string]any{"rank": rank, "scale": 2.0, "keys": []string{adapterModule}}}
	if err := writeJSON(filepath.Join(dir, lora.ConfigFile), config); err != nil {
		return err
	}
	var tensors []artifact.NewTensor
	for i, shape := range [][]int64{{adapterWidth, rank}, {rank, adapterWidth}} {
		t := artifact.NewTensor{Name: adapterModule + []string{".lora_a", ".lora_b"}[i], DType: artifact.F32, Shape: shape}
		for n := range uint64(adapterWidth * rank) {
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(float32(int32(mix(seed+uint64(i), n)))))
		}
		tensors = append(tensors, t)
	}
	return artifact.WriteSafetensors(filepath.Join(dir, lora.MLXWeights), tensors, nil)
}

// adapters are the loaded ones of a model.
type adapters struct {
	faults faults
	limit  uint64

	mu     sync.Mutex
	held   uint64
	loaded []*adapter
	preset []contract.AdapterUse
}

type adapter struct {
	info  *cladev1.AdapterInfo
	word  uint64
	users int
	left  atomic.Bool
	freed chan struct{}
}

// readAdapter reads one whole, or refuses it by name.
func (a *adapters) readAdapter(id, path string, scale float64) (_ *adapter, err error) {
	opened, err := lora.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }() // only read
	rank := 0
	for _, m := range opened.Modules {
		if m.Path != adapterModule || m.In != adapterWidth || m.Out != adapterWidth {
			return nil, contract.Errorf(contract.ArtifactCorrupt, m.A.File+": "+m.Path, "an echo has one module, %s of %d channels", adapterModule, adapterWidth)
		}
		rank = max(rank, m.Rank)
		for _, part := range []lora.Matrix{m.A, m.B} {
			if _, err := opened.Read(part); err != nil && !a.faults.has(HalfAdapter) {
				return nil, err
			}
		}
	}
	digest, err := opened.Digest()
	if err != nil {
		return nil, err
	}
	raw, err := hex.DecodeString(strings.TrimPrefix(digest, "sha256:"))
	if err != nil || len(raw) < 8 {
		return nil, contract.Errorf(contract.Internal, path, "%q is no digest", digest)
	}
	return &adapter{word: binary.LittleEndian.Uint64(raw), freed: make(chan struct{}), info: &cladev1.AdapterInfo{
		Id: id, Path: path, Format: string(opened.Format), Scale: scale, Rank: uint32(rank), Modules: uint32(len(opened.Modules)),
		Bytes: uint64(opened.StoredBytes()), Digest: digest,
	}}, nil
}

func (a *adapters) find(id string) *adapter {
	if i := slices.IndexFunc(a.loaded, func(x *adapter) bool { return x.info.Id == id }); i >= 0 {
		return a.loaded[i]
	}
	return nil
}

func (a *adapters) load(id, path string, scale float64) error {
	if err := contract.CheckAdapterID(id); err != nil {
		return err
	}
	if err := contract.CheckAdapterScale(id, scale); err != nil {
		return err
	}
	one, err := a.readAdapter(id, path, scale)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.find(id) != nil && !a.faults.has(TwiceLoaded):
		return contract.Errorf(contract.InvalidArgument, id, "an adapter of this name is loaded already")
	case a.held+one.info.Bytes > a.limit:
		return contract.Errorf(contract.MemoryAdmission, id, "takes %d bytes beside %d of others, and %d were planned", one.info.Bytes, a.held, a.limit)
	}
	a.held += one.info.Bytes
	a.loaded = append(a.loaded, one)
	return nil
}

// unload takes an adapter from new requests at once, and returns when the last that has it has ended.
func (a *adapters) unload(ctx context.Context, id string) error {
	a.mu.Lock()
	one := a.find(id)
	if one == nil {
		a.mu.Unlock()
		return unloaded(id)
	}
	if slices.ContainsFunc(a.preset, func(u contract.AdapterUse) bool { return u.ID == id }) {
		a.mu.Unlock()
		return contract.Errorf(contract.InvalidArgument, id, "the model was opened with it")
	}
	a.loaded = slices.DeleteFunc(a.loaded, func(x *adapter) bool { return x == one })
	one.left.Store(true)
	if one.users == 0 {
		a.free(one)
	}
	a.mu.Unlock()
	if a.faults.has(EagerUnload) {
		return nil
	}
	select {
	case <-one.freed:
		return nil
	case <-ctx.Done():
		return contract.Errorf(contract.Cancelled, id, "it is freed behind the last request that has it")
	}
}

// free gives the memory back; under mu.
func (a *adapters) free(one *adapter) {
	a.held -= one.info.Bytes
	close(one.freed)
}

func unloaded(id string) error {
	return contract.Errorf(contract.NotFound, id, "no adapter of this name is loaded")
}

func (a *adapters) list() *cladev1.AdaptersResponse {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &cladev1.AdaptersResponse{}
	for _, one := range a.loaded {
		out.Loaded, out.Adapters = append(out.Loaded, one.info.Id), append(out.Adapters, one.info)
	}
	return out
}

func (a *adapters) bytes() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// stack is what one request has; the zero value is nothing.
type stack struct {
	of      *adapters
	entries []*adapter
	scales  []float64
	names   []string
}

// take finds what a request chooses; nil is what the model was opened with.
func (a *adapters) take(choice *string) (stack, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	uses := a.preset
	if choice != nil {
		var err error
		if uses, err = contract.ParseAdapters(*choice); err != nil {
			return stack{}, err
		}
	}
	out := stack{of: a}
	for _, u := range uses {
		one := a.find(u.ID)
		if one == nil && a.faults.has(BlindChoice) {
			continue
		}
		if one == nil {
			return stack{}, unloaded(u.ID)
		}
		scale := one.info.Scale
		if u.Scale != nil {
			scale = *u.Scale
		}
		out.entries, out.scales = append(out.entries, one), append(out.scales, scale)
		out.names = append(out.names, fmt.Sprintf("%s:%g", u.ID, scale))
	}
	for _, one := range out.entries {
		one.users++
	}
	return out, nil
}

func (s stack) release() {
	if s.of == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	for _, one := range s.entries {
		if one.users--; one.users == 0 && one.left.Load() {
			s.of.free(one)
		}
	}
}

// word is the same for two stacks exactly when they do the same; 0 does nothing.
func (s stack) word() uint64 {
	out := uint64(0)
	if s.of == nil || s.of.faults.has(IgnoredAdapter) {
		return 0
	}
	for i, one := range s.entries {
		if s.scales[i] == 0 || one.left.Load() && s.of.faults.has(LostAdapter) {
			continue
		}
		out = mix(mix(out, one.word), math.Float64bits(s.scales[i])) | 1
	}
	return out
}

// Adapters implements plugin.Adapter.
func (m *model) Adapters(ctx context.Context, req *cladev1.AdaptersRequest) (*cladev1.AdaptersResponse, error) {
	var err error
	switch a := req.GetAction().(type) {
	case *cladev1.AdaptersRequest_Load:
		scale := 1.0
		if a.Load.Scale != nil {
			scale = *a.Load.Scale
		}
		err = m.adapters.load(a.Load.GetId(), a.Load.GetPath(), scale)
	case *cladev1.AdaptersRequest_Unload:
		err = m.adapters.unload(ctx, a.Unload.GetId())
	case *cladev1.AdaptersRequest_List:
	default:
		err = invalid("action", "want load, unload or list")
	}
	if err != nil {
		return nil, err
	}
	return m.adapters.list(), nil
}
