package lora

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// Files of an adapter's folder.
const (
	ConfigFile  = "adapter_config.json"
	MLXWeights  = "adapters.safetensors"
	PEFTWeights = "adapter_model.safetensors"
	// PEFTPickle is what PEFT wrote before; it is never read.
	PEFTPickle = "adapter_model.bin"
)

// maxModules bounds what one adapter changes.
const maxModules = 1 << 16

// Adapter is an open adapter, known from its headers.
type Adapter struct {
	Path string
	Settings
	// Modules it changes, by path.
	Modules []Module

	config []byte
	file   *artifact.Artifact
}

// Module is one change: y = W x + Scale B(A x).
type Module struct {
	// Path of the module in the model, without what the format puts before it.
	Path          string
	Rank, In, Out int
	Scale         float64
	A, B          Matrix // [Rank, In], [Out, Rank]
}

// Matrix is a stored tensor, perhaps the other way round.
type Matrix struct {
	artifact.Tensor
	Transposed bool
}

// Open reads config and headers of the adapter in folder dir. Close releases it.
func Open(dir string) (_ *Adapter, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, dir, "not a usable path: %w", err)
	}
	c, err := artifact.ReadConfig(abs, ConfigFile)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Path: abs}
	if a.Settings, err = ParseSettings(c); err != nil {
		return nil, err
	}
	if a.config, err = c.MarshalJSON(); err != nil {
		return nil, contract.Errorf(contract.ArtifactCorrupt, ConfigFile, "%w", err)
	}
	name := PEFTWeights
	if a.Format == MLX {
		name = MLXWeights
	}
	if a.file, err = artifact.OpenFile(filepath.Join(abs, name)); err != nil {
		if contract.KindOf(err) == contract.NotFound {
			err = contract.Errorf(contract.NotFound, filepath.Join(abs, name), "no such file, which an adapter of %s has", a.Format).
				WithNext("save it as safetensors; %s is a pickle and is not read", PEFTPickle)
		}
		return nil, err
	}
	if a.Modules, err = modules(a.Settings, name, a.file.Tensors()); err != nil {
		_ = a.file.Close() // only read
		return nil, err
	}
	return a, nil
}

// Close releases the file.
func (a *Adapter) Close() error { return a.file.Close() }

// StoredBytes is what the tensors take in the file.
func (a *Adapter) StoredBytes() int64 { return a.file.Bytes() }

// half is which half of a pair a tensor is.
type half struct {
	module string
	isB    bool
}

// halfOf reads a tensor's name.
func (s Settings) halfOf(name string) (half, bool) {
	ends := [2]string{".lora_a", ".lora_b"}
	if s.Format == PEFT {
		var ours bool
		if name, ours = strings.CutPrefix(name, "base_model.model."); !ours {
			return half{}, false
		}
		ends = [2]string{".lora_A.weight", ".lora_B.weight"}
	}
	for i, end := range ends {
		if module, ok := strings.CutSuffix(name, end); ok && module != "" {
			return half{module, i == 1}, true
		}
	}
	return half{}, false
}

// modules pairs the tensors of a file.
func modules(s Settings, file string, tensors []artifact.Tensor) ([]Module, error) {
	refuse := func(t artifact.Tensor, format string, args ...any) error {
		return contract.Errorf(contract.ArtifactCorrupt, file+": "+t.Name, format, args...)
	}
	found := map[string]*Module{}
	for _, t := range tensors {
		h, ok := s.halfOf(t.Name)
		switch {
		case !ok:
			return nil, refuse(t, "is no half of a low-rank pair of %s", s.Format)
		case len(t.Shape) != 2:
			return nil, refuse(t, "has shape %v, and only pairs of matrices are run", t.Shape)
		case !s.adapts(h.module):
			return nil, refuse(t, "the config does not list %s among its modules", h.module)
		case !readable(t.DType):
			return nil, refuse(t, "is stored as %s, want F32, F16 or BF16", t.DType)
		}
		m := found[h.module]
		if m == nil {
			if len(found) == maxModules {
				return nil, refuse(t, "more than %d modules", maxModules)
			}
			m = &Module{Path: h.module}
			found[h.module] = m
		}
		if h.isB {
			m.B = Matrix{t, s.Format == MLX}
		} else {
			m.A = Matrix{t, s.Format == MLX}
		}
	}
	if len(found) == 0 {
		return nil, contract.Errorf(contract.ArtifactCorrupt, file, "holds no tensor")
	}
	out := make([]Module, 0, len(found))
	for _, m := range found {
		if err := m.settle(s, refuse); err != nil {
			return nil, err
		}
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// settle takes the module's sizes from its pair and holds them to each other and to the config.
func (m *Module) settle(s Settings, refuse func(artifact.Tensor, string, ...any) error) error {
	switch {
	case m.A.Name == "":
		return refuse(m.B.Tensor, "its other half is missing")
	case m.B.Name == "":
		return refuse(m.A.Tensor, "its other half is missing")
	}
	rank, in := m.A.dims()
	out, inner := m.B.dims()
	want := s.rankOf(m.Path)
	switch {
	case rank != inner:
		return refuse(m.B.Tensor, "has shape %v beside %v of the other half", m.B.Shape, m.A.Shape)
	case rank != int64(want):
		return refuse(m.A.Tensor, "has rank %d, the config says %d", rank, want)
	case in < 1 || out < 1 || in > math.MaxInt32 || out > math.MaxInt32:
		return refuse(m.A.Tensor, "a change of %d by %d channels", out, in)
	}
	m.Rank, m.In, m.Out, m.Scale = int(rank), int(in), int(out), s.scaleOf(m.Path, int(rank))
	if math.Abs(m.Scale) > maxScale {
		return contract.Errorf(contract.ArtifactCorrupt, ConfigFile+": "+s.scaledBy(m.Path), "scales %s by %g, and at most %g is run", m.Path, m.Scale, float64(maxScale))
	}
	return nil
}

// dims are rows and columns as Read gives them.
func (m Matrix) dims() (rows, cols int64) {
	if m.Transposed {
		return m.Shape[1], m.Shape[0]
	}
	return m.Shape[0], m.Shape[1]
}

func readable(d artifact.DType) bool {
	return d == artifact.F32 || d == artifact.F16 || d == artifact.BF16
}

// Read gives a matrix row by row, the right way round.
func (a *Adapter) Read(m Matrix) ([]float32, error) {
	raw := make([]byte, m.Bytes)
	if _, err := a.file.ReadAt(m.Tensor, raw, 0); err != nil {
		return nil, err
	}
	rows, cols := m.dims()
	out := make([]float32, rows*cols)
	for i := range out {
		at := int64(i)
		if m.Transposed {
			at = at%cols*rows + at/cols
		}
		switch m.DType {
		case artifact.F32:
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*at:]))
		case artifact.BF16:
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*at:])) << 16)
		default:
			out[i] = halfFloat(binary.LittleEndian.Uint16(raw[2*at:]))
		}
		if v := float64(out[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, contract.Errorf(contract.ArtifactCorrupt, m.File+": "+m.Name, "value %d is not finite", i)
		}
	}
	return out, nil
}

// halfFloat widens a float16.
func halfFloat(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&1023
	switch {
	case exp == 31:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case exp == 0:
		v := float32(frac) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(v))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// Digest is SHA-256 over what the adapter does: its config and every tensor's name, type, shape and bytes.
func (a *Adapter) Digest() (string, error) {
	sum := sha256.New()
	_, _ = sum.Write(a.config)
	buffer := make([]byte, 1<<20)
	for _, t := range a.file.Tensors() {
		_, _ = io.WriteString(sum, "\x00"+t.Name+"\x00"+string(t.DType)+"\x00")
		_ = binary.Write(sum, binary.LittleEndian, t.Shape)
		for at := int64(0); at < t.Bytes; {
			n, err := a.file.ReadAt(t, buffer, at)
			if err != nil && !errors.Is(err, io.EOF) {
				return "", err
			}
			_, _ = sum.Write(buffer[:n])
			at += int64(n)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
