package weights

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/weights/quant"
)

// Param is one parameter of a graph, under the name the graph gives it.
type Param struct {
	// Name ends in ".weight" for what may be stored quantized ("model.layers.0.mlp.up_proj.weight").
	Name string
	// Shape is what the graph computes with, [out, in] for a matrix, whatever is stored.
	Shape []int
	// InterleavedHeads is the number of heads whose rows the file holds in interleaved rope order (2i, 2i+1), to be put
	// back into half-split order (i, i+D/2); 0 for rows that lie as the graph wants them.
	InterleavedHeads int
	// Part is where the parameter's rows lie in a tensor that holds several parameters; nil for a tensor of its own.
	Part *Part
	// Plain is true for what is no matrix to multiply by, whatever its shape: the kernels do not pack it.
	Plain bool
	// KeepFloat32 leaves an array that is stored as F32 so, whatever the graph computes in.
	KeepFloat32 bool
	// Experts is true for [experts, out, in]: a matrix for each expert.
	Experts bool
	// Joined names the tensors, in order, that a parameter of experts is read from when it is not stored as one.
	Joined []string
}

// Part is a parameter's rows within a stored tensor: of each of Groups equal runs of its rows, as many as belong to the parameter,
// from the run's row First on.
type Part struct {
	Of            string // the graph's name of the stored tensor, with the parameter's ending
	Rows          int    // of the stored tensor, of all experts together
	Groups, First int
}

// Row is where row r of the parameter's rows lies, and how many follow each other from there.
func (p *Part) Row(r, rows int) (at, run int) {
	if p == nil {
		return r, rows - r
	}
	each := rows / p.Groups
	return r/each*(p.Rows/p.Groups) + p.First + r%each, each - r%each
}

// stored is the tensor that the parameter is read from, as a parameter.
func (p Param) stored() Param {
	if p.Part == nil {
		return p
	}
	p.Name, p.Shape = p.Part.Of, slices.Clone(p.Shape)
	if p.Experts {
		p.Shape[1] = p.Part.Rows / p.Shape[0]
	} else {
		p.Shape[0] = p.Part.Rows
	}
	return p
}

// place is where row r of the source's rows lies, in which tensor, and how many follow each other from there.
func (src Source) place(i, r, rows int) (t artifact.Tensor, at, run int) {
	if len(src.joined) == 0 {
		at, run = src.Part.Row(r, rows)
		return src.reads[i], at, run
	}
	each := rows / len(src.joined)
	return src.joined[r/each], r % each, each - r%each
}

// geometry is how a parameter is read: rows of so many values. Values of a vector that change places are rows.
func (p Param) geometry() (rows, width int) {
	width = p.Shape[len(p.Shape)-1]
	if len(p.Shape) == 1 && (p.Part != nil || p.InterleavedHeads != 0) {
		width = 1
	}
	return int(p.elements()) / width, width
}

func (p Param) elements() int64 {
	n := int64(1)
	for _, d := range p.Shape {
		n *= int64(d)
	}
	return n
}

// Rules say how an artifact's tensors stand for parameters.
type Rules struct {
	// Name gives the graph's name of a stored tensor; "" drops a tensor that the graph has no use for. Nil keeps names.
	Name func(stored string) string
	// Quantization is the config's block; zero for a model without one.
	Quantization Quantization
	// Squeezed has matrices of one row stored as vectors, as GGUFs may have them.
	Squeezed bool
}

// Source is a parameter and the stored tensor (or triple) it is decoded from.
type Source struct {
	Param
	codec codec
	// reads lists what is read row by row: the tensor, and a quantized one's scales and biases.
	reads []artifact.Tensor
	// joined are tensors whose rows follow one another in the place of reads[0], which is the first of them; nil for one tensor.
	joined []artifact.Tensor
	// global is one float32 that scales the whole tensor; nil for a tensor without.
	global *artifact.Tensor
}

// geometry is how the source is read: rows of so many values, of which some formats hold several of the parameter's.
func (src Source) geometry() (rows, width int) {
	rows, width = src.Param.geometry()
	if c, ok := src.codec.(trellisCodec); ok {
		rows, width = rows/c.together(), width*c.together()
	}
	return rows, width
}

// Set is a graph's parameters, all found.
type Set struct {
	artifact *artifact.Artifact
	sources  []Source
}

// Match pairs params with a's tensors.
func Match(a *artifact.Artifact, params []Param, rules Rules) (*Set, error) {
	m := matcher{artifact: a, rules: rules, stored: map[string]artifact.Tensor{}, parted: map[string]Source{}}
	if err := m.index(); err != nil {
		return nil, err
	}
	if rules.Quantization.Repacked && !m.hasQWeights() {
		return nil, contract.Errorf(contract.ArtifactCorrupt, filepath.Base(a.Path)+": quantization_config", "says that the matrices are packed, and no tensor ends in .qweight")
	}
	set := &Set{artifact: a}
	for _, p := range params {
		src, err := m.part(p)
		if err != nil {
			return nil, err
		}
		set.sources = append(set.sources, src)
	}
	return set, m.leftovers()
}

// Params lists the graph's parameters.
func (s *Set) Params() []Param {
	out := make([]Param, len(s.sources))
	for i, src := range s.sources {
		out[i] = src.Param
	}
	return out
}

type matcher struct {
	artifact *artifact.Artifact
	rules    Rules
	stored   map[string]artifact.Tensor // by the graph's name; taken ones are removed
	parted   map[string]Source          // by the graph's name: tensors of which parts were taken
}

func (m *matcher) index() error {
	for _, t := range m.artifact.Tensors() {
		name := t.Name
		if m.rules.Name != nil {
			name = m.rules.Name(name)
		}
		if name == "" {
			continue
		}
		if other, twice := m.stored[name]; twice {
			return corrupt(t, "stands for %s, and so does %s", name, other.Name)
		}
		m.stored[name] = t
	}
	return nil
}

func (m *matcher) take(name string) (artifact.Tensor, bool) {
	t, ok := m.stored[name]
	delete(m.stored, name)
	return t, ok
}

// part finds a parameter in a tensor of its own, or in one that it shares with others.
func (m *matcher) part(p Param) (Source, error) {
	src, ok := m.parted[p.stored().Name]
	if !ok {
		var err error
		if src, err = m.source(p.stored()); err != nil {
			return Source{}, err
		}
	}
	if part := p.Part; part != nil {
		m.parted[part.Of] = src
		rows, _ := p.geometry()
		if part.Groups < 1 || part.Rows%part.Groups != 0 || rows%part.Groups != 0 || part.First+rows/part.Groups > part.Rows/part.Groups {
			return Source{}, contract.Errorf(contract.Internal, p.Name, "%d rows from %d on of %d groups of %d rows", rows, part.First, part.Groups, part.Rows)
		}
	}
	src.Param = p
	if p.InterleavedHeads != 0 && p.Shape[0]%(2*p.InterleavedHeads) != 0 {
		return Source{}, corrupt(src.reads[0], "%d rows are not pairs in each of %d heads", p.Shape[0], p.InterleavedHeads)
	}
	return src, nil
}

func (m *matcher) source(p Param) (Source, error) {
	path, isWeight := strings.CutSuffix(p.Name, ".weight")
	if m.rules.Quantization.Repacked && isWeight && m.has(path+".qweight") {
		return m.awq(p, path)
	}
	t, ok := m.take(p.Name)
	if !ok && len(p.Joined) > 0 && m.has(p.Joined[0]) {
		return m.join(p)
	}
	if !ok {
		return Source{}, contract.Errorf(contract.ArtifactCorrupt, filepath.Base(m.artifact.Path)+": "+p.Name, "this tensor is missing")
	}
	if len(p.Shape) == 0 {
		return Source{}, contract.Errorf(contract.Internal, p.Name, "a parameter without a shape")
	}
	if scales, quantized := m.stored[path+".scales"]; quantized && isWeight {
		return m.quantized(p, path, t, scales)
	}
	if entry, listed := m.rules.Quantization.Modules[path]; listed && entry.Bits != 0 {
		return Source{}, corrupt(t, "the config lists it as quantized, but %s.scales is missing", path)
	}
	if isWeight && t.DType == artifact.U32 { // no float: codes, whose shape is another
		return Source{}, corrupt(t, "holds packed codes, but %s.scales is missing", path)
	}
	return m.plain(p, t)
}

func (m *matcher) has(name string) bool {
	_, ok := m.stored[name]
	return ok
}

// join is a parameter whose experts are stored one by one, in one format.
func (m *matcher) join(p Param) (Source, error) {
	var out Source
	for i, name := range p.Joined {
		part, err := m.source(Param{Name: name, Shape: p.Shape[1:]})
		switch {
		case err != nil:
			return Source{}, err
		case len(part.reads) != 1:
			return Source{}, corrupt(part.reads[0], "is quantized alone: experts are quantized together")
		case i == 0:
			out = Source{Param: p, codec: part.codec, reads: part.reads}
		case part.codec.String() != out.codec.String():
			return Source{}, corrupt(part.reads[0], "is %s beside parts of %s", part.codec, out.codec)
		}
		out.joined = append(out.joined, part.reads[0])
	}
	return out, nil
}

// plain is a tensor of floats or of GGUF blocks.
func (m *matcher) plain(p Param, t artifact.Tensor) (Source, error) {
	shape := p.Shape
	if m.rules.Squeezed && len(shape) == 2 && shape[0] == 1 && len(t.Shape) == 1 {
		shape = shape[1:]
	}
	if !slices.EqualFunc(t.Shape, shape, func(a int64, b int) bool { return a == int64(b) }) {
		return Source{}, corrupt(t, "has shape %v, the config makes it %v", t.Shape, p.Shape)
	}
	src := Source{Param: p, reads: []artifact.Tensor{t}}
	if f, ok := floatCodecOf(t.DType); ok {
		src.codec = f
		return src, nil
	}
	if b, ok := quant.BlockFormat(string(t.DType)); ok {
		src.codec = blockCodec{b}
		return src, nil
	}
	return Source{}, contract.Errorf(contract.UnsupportedModel, t.File+": "+t.Name,
		"stored as %s, which this version does not decode", t.DType).
		WithNext("use a file of F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, Q8_K, IQ4_NL, IQ4_XS or MXFP4 tensors, or MLX weights")
}

// quantized is what MLX wrote: codes with scales and, in mode affine, biases. As in mlx-lm the file's shapes and types decide
// mode, bits and group; a config entry for the very path must agree with them.
func (m *matcher) quantized(p Param, path string, packed, scales artifact.Tensor) (Source, error) {
	delete(m.stored, path+".scales")
	entry, listed := m.rules.Quantization.Modules[path]
	if listed && entry.Bits == 0 {
		return Source{}, corrupt(scales, "the config says that %s is not quantized", path)
	}
	if trellis := m.trellisOf(entry, listed); trellis != nil && !m.has(path+".biases") {
		return m.trellis(p, path, packed, scales, *trellis)
	}
	mode := m.affine
	if scales.DType == artifact.U8 {
		mode = m.floatBlock
	}
	src, is, err := mode(p, path, packed, scales)
	if err == nil && listed && entry != is {
		err = corrupt(packed, "is %s, the config says %s", is, entry)
	}
	return src, err
}

func (m *matcher) affine(p Param, path string, packed, scales artifact.Tensor) (Source, Module, error) {
	biases, ok := m.take(path + ".biases")
	if !ok {
		return Source{}, Module{}, corrupt(packed, "%s.biases is missing", path)
	}
	shape, err := codesOf(p, packed, scales)
	float, isFloat := floatCodecOf(scales.DType)
	switch {
	case err != nil:
		return Source{}, Module{}, err
	case !slices.Equal(scales.Shape, biases.Shape) || scales.DType != biases.DType:
		return Source{}, Module{}, corrupt(biases, "is %s %v beside scales of %s %v", biases.DType, biases.Shape, scales.DType, scales.Shape)
	case !isFloat:
		return Source{}, Module{}, corrupt(scales, "scales are %s, not floats", scales.DType)
	case !shape.Valid():
		return Source{}, Module{}, corrupt(packed, "packed %v with scales %v is no affine format of a matrix of %v", packed.Shape, scales.Shape, p.Shape)
	}
	return Source{Param: p, codec: affineCodec{shape, float}, reads: []artifact.Tensor{packed, scales, biases}}, Module{Affine: shape, Mode: affineMode}, nil
}

// floatBlock is a mode without biases, whose scales are bytes.
func (m *matcher) floatBlock(p Param, path string, packed, scales artifact.Tensor) (Source, Module, error) {
	shape, err := codesOf(p, packed, scales)
	if err != nil {
		return Source{}, Module{}, err
	}
	block, ok := quant.FloatBlockOf(shape.Bits, shape.Group)
	if !ok {
		return Source{}, Module{}, unsupportedMode(path, fmt.Sprintf("8-bit scales on %d-bit codes in groups of %d", shape.Bits, shape.Group))
	}
	src := Source{Param: p, codec: floatBlockCodec{block: block, global: quant.NoGlobal}, reads: []artifact.Tensor{packed, scales}}
	global, ok := m.take(path + ".global_scale")
	if !ok {
		return src, Module{Affine: shape, Mode: block.Mode}, nil
	}
	if !block.TakesGlobal() || global.DType != artifact.F32 || global.Bytes != 4 {
		return Source{}, Module{}, corrupt(global, "is %s %v: a global scale is one F32 beside nvfp4, not beside %s", global.DType, global.Shape, block.Mode)
	}
	src.global, src.codec = &global, floatBlockCodec{block: block, scaled: true, global: quant.NoGlobal}
	return src, Module{Affine: shape, Mode: block.Mode}, nil
}

// codesOf infers bits and group of a matrix [.., out, in] from the shapes of its codes and scales.
func codesOf(p Param, packed, scales artifact.Tensor) (quant.Affine, error) {
	n := len(p.Shape) - 1
	if n < 1 || len(packed.Shape) != n+1 || len(scales.Shape) != n+1 {
		return quant.Affine{}, corrupt(packed, "a quantized tensor has shape %v and scales %v, the config makes it %v",
			packed.Shape, scales.Shape, p.Shape)
	}
	fits := func(shape []int64) bool {
		return slices.EqualFunc(shape[:n], p.Shape[:n], func(a int64, b int) bool { return a == int64(b) })
	}
	in, words, groups := int64(p.Shape[n]), packed.Shape[n], scales.Shape[n]
	switch {
	case packed.DType != artifact.U32:
		return quant.Affine{}, corrupt(packed, "packed codes are %s, not U32", packed.DType)
	case !fits(packed.Shape) || !fits(scales.Shape) || groups == 0 || in%groups != 0:
		return quant.Affine{}, corrupt(packed, "packed %v with scales %v cannot hold a matrix of %v", packed.Shape, scales.Shape, p.Shape)
	case words > in || words*32%in != 0:
		return quant.Affine{}, corrupt(packed, "packed %v holds no whole number of bits for each value of a matrix of %v", packed.Shape, p.Shape)
	}
	return quant.Affine{Bits: int(words * 32 / in), Group: int(in / groups)}, nil
}

func (m *matcher) leftovers() error {
	if len(m.stored) == 0 {
		return nil
	}
	names := make([]string, 0, len(m.stored))
	for name := range m.stored {
		names = append(names, name)
	}
	slices.Sort(names)
	more := ""
	if n := len(names) - 1; n > 0 {
		more = fmt.Sprintf(", nor for %d more", n)
	}
	return corrupt(m.stored[names[0]], "the graph has no place for this tensor%s", more)
}

func corrupt(t artifact.Tensor, format string, args ...any) *contract.Error {
	return contract.Errorf(contract.ArtifactCorrupt, t.File+": "+t.Name, format, args...)
}
