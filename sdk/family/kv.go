package family

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// KV is how a cache is stored: plain, affine, affine by layer, or turbo. Exactly one of the four is set.
type KV struct {
	// Plain is native (as the model computes), f32 or bf16.
	Plain string
	// Bits and Group are of a uniform affine scheme.
	Bits, Group int64
	// Layers quantizes only the layers listed, sliding ones too.
	Layers []artifact.KVLayer
	// K and V are a turbo scheme's bits; full-attention layers only.
	K, V int64
	// Start is the token offset at which the cache converts; 0 quantizes from the first token.
	Start int64
}

// The plain schemes.
const (
	NativeKV = "native"
	F32KV    = "f32"
	BF16KV   = "bf16"
)

// defaultGroup is the group of an affine scheme that names none; spellings leave it out.
const defaultGroup = 64

// What the schemes can store.
var (
	affineBits   = []int64{2, 3, 4, 5, 6, 8}
	affineGroups = []int64{32, 64, 128}
	turboK       = []int64{2, 4, 5, 8}
	turboV       = []int64{2, 3, 4, 5, 8}
)

var (
	affineForm = regexp.MustCompile(`^([0-9]{1,3})(?:g([0-9]{1,4}))?$`)
	turboForm  = regexp.MustCompile(`^k([0-9])v([0-9])$`)
	layerForm  = regexp.MustCompile(`^([0-9]{1,4})(?:-([0-9]{1,4}))?=(.+)$`)
)

// kvSpellings is said by every refusal.
const kvSpellings = "native, f32, bf16, BITS, affine:BITS[gGROUP], turbo[:kNvM], layers:I[-J]=BITS[gGROUP],..., each quantized one with @START"

// ParseKV reads a scheme's spelling. off is native; a bare number is affine with groups of 64; turbo is turbo:k8v3. Errors
// are InvalidArgument.
func ParseKV(text string) (KV, error) {
	refuse := func(why string) error {
		return contract.Errorf(contract.InvalidArgument, "kv", "%q %s; want %s", text, why, kvSpellings)
	}
	body, start, delayed := strings.Cut(text, "@")
	var k KV
	kind, rest, _ := strings.Cut(body, ":")
	why := ""
	switch {
	case rest == "" && strings.HasSuffix(body, ":"):
		why = "ends early"
	case body == NativeKV || body == F32KV || body == BF16KV:
		k.Plain = body
	case body == "off":
		k.Plain = NativeKV
	case body == "turbo":
		k.K, k.V = 8, 3
	case kind == "turbo":
		k, why = parseTurbo(rest)
	case kind == "affine":
		k.Bits, k.Group, why = parseAffine(rest)
	case kind == "layers":
		k.Layers, why = parseLayers(rest)
	default:
		if _, err := strconv.ParseUint(body, 10, 8); err != nil {
			return KV{}, refuse("is no KV scheme")
		}
		k.Bits, k.Group, why = parseAffine(body)
	}
	if why != "" {
		return KV{}, refuse(why)
	}
	if !delayed {
		return k, nil
	}
	n, err := strconv.ParseInt(start, 10, 32)
	switch {
	case err != nil || n < 0:
		return KV{}, refuse("has a start that is no token offset")
	case k.Plain != "":
		return KV{}, refuse("has a start, and nothing to convert")
	}
	k.Start = n
	return k, nil
}

func parseAffine(text string) (bits, group int64, why string) {
	m := affineForm.FindStringSubmatch(text)
	if m == nil {
		return 0, 0, "is not BITS or BITSgGROUP"
	}
	bits, _ = strconv.ParseInt(m[1], 10, 64) // digits, as the form says
	group = defaultGroup
	if m[2] != "" {
		group, _ = strconv.ParseInt(m[2], 10, 64)
	}
	return bits, group, affineWhy(bits, group)
}

func affineWhy(bits, group int64) string {
	switch {
	case !slices.Contains(affineBits, bits):
		return fmt.Sprintf("has %d bits; stored are %s", bits, show(numbers(affineBits)))
	case !slices.Contains(affineGroups, group):
		return fmt.Sprintf("has groups of %d; stored are %s", group, show(numbers(affineGroups)))
	}
	return ""
}

func numbers(list []int64) []any {
	out := make([]any, len(list))
	for i, n := range list {
		out[i] = n
	}
	return out
}

func parseTurbo(text string) (KV, string) {
	m := turboForm.FindStringSubmatch(text)
	if m == nil {
		return KV{}, "is not turbo:kNvM"
	}
	k := KV{K: int64(m[1][0] - '0'), V: int64(m[2][0] - '0')}
	return k, k.turboWhy()
}

func (k KV) turboWhy() string {
	switch {
	case !slices.Contains(turboK, k.K):
		return fmt.Sprintf("has %d bits for keys; stored are %s", k.K, show(numbers(turboK)))
	case !slices.Contains(turboV, k.V):
		return fmt.Sprintf("has %d bits for values; stored are %s", k.V, show(numbers(turboV)))
	}
	return ""
}

func parseLayers(text string) ([]artifact.KVLayer, string) {
	var out []artifact.KVLayer
	seen := map[int64]bool{}
	for part := range strings.SplitSeq(text, ",") {
		m := layerForm.FindStringSubmatch(part)
		if m == nil {
			return nil, "is not LAYER=BITS or FIRST-LAST=BITS"
		}
		first, _ := strconv.ParseInt(m[1], 10, 64) // digits, as the form says
		last := first
		if m[2] != "" {
			last, _ = strconv.ParseInt(m[2], 10, 64)
		}
		bits, group, why := parseAffine(m[3])
		switch {
		case why != "":
			return nil, why
		case last < first || last >= layerLimit:
			return nil, fmt.Sprintf("has layers %d to %d", first, last)
		}
		for l := first; l <= last; l++ {
			if seen[l] {
				return nil, fmt.Sprintf("names layer %d twice", l)
			}
			seen[l] = true
			out = append(out, artifact.KVLayer{Layer: l, Bits: bits, Group: group})
		}
	}
	return out, ""
}

// LayersKV is the scheme of a kv_config.json, whose storage is held to what can be stored.
func LayersKV(layers []artifact.KVLayer) (KV, error) {
	out := KV{Layers: slices.Clone(layers)}
	slices.SortFunc(out.Layers, func(a, b artifact.KVLayer) int { return int(a.Layer - b.Layer) })
	for _, l := range out.Layers {
		if why := affineWhy(l.Bits, l.Group); why != "" {
			return KV{}, contract.Errorf(contract.ArtifactCorrupt, artifact.KVConfigFile, "layer %d %s", l.Layer, why)
		}
	}
	return out, nil
}

// String is the scheme's one spelling: what ParseKV reads back to an equal scheme. A group of 64 and a start of 0 are left
// out; neighbouring layers that are stored alike are a range.
func (k KV) String() string {
	text := k.Plain
	switch {
	case k.Bits > 0:
		text = "affine:" + affineText(k.Bits, k.Group)
	case k.K > 0:
		text = fmt.Sprintf("turbo:k%dv%d", k.K, k.V)
	case len(k.Layers) > 0:
		text = "layers:" + k.layersText()
	}
	if k.Start > 0 {
		text += "@" + strconv.FormatInt(k.Start, 10)
	}
	return text
}

func affineText(bits, group int64) string {
	if group == defaultGroup {
		return strconv.FormatInt(bits, 10)
	}
	return fmt.Sprintf("%dg%d", bits, group)
}

func (k KV) layersText() string {
	var parts []string
	for i := 0; i < len(k.Layers); {
		first := k.Layers[i]
		j := i + 1
		for j < len(k.Layers) && k.Layers[j] == (artifact.KVLayer{Layer: first.Layer + int64(j-i), Bits: first.Bits, Group: first.Group}) {
			j++
		}
		span := strconv.FormatInt(first.Layer, 10)
		if j-i > 1 {
			span += "-" + strconv.FormatInt(k.Layers[j-1].Layer, 10)
		}
		parts = append(parts, span+"="+affineText(first.Bits, first.Group))
		i = j
	}
	return strings.Join(parts, ",")
}

// Kind is plain, affine, layers or turbo: the option a plugin declares as kv.<kind>, and with kv.start a start.
func (k KV) Kind() string {
	switch {
	case k.Bits > 0:
		return "affine"
	case k.K > 0:
		return "turbo"
	case len(k.Layers) > 0:
		return "layers"
	}
	return "plain"
}

// Proto is the scheme on the wire.
func (k KV) Proto() *cladev1.KvScheme {
	out := &cladev1.KvScheme{}
	switch k.Kind() {
	case "affine":
		out.Scheme = &cladev1.KvScheme_Affine{Affine: &cladev1.KvAffine{Bits: uint32(k.Bits), Group: uint32(k.Group)}}
	case "turbo":
		out.Scheme = &cladev1.KvScheme_Turbo{Turbo: &cladev1.KvTurbo{KBits: uint32(k.K), VBits: uint32(k.V)}}
	case "layers":
		l := &cladev1.KvLayers{}
		for _, e := range k.Layers {
			l.Layers = append(l.Layers, &cladev1.KvLayer{Layer: uint32(e.Layer), Affine: &cladev1.KvAffine{Bits: uint32(e.Bits), Group: uint32(e.Group)}})
		}
		out.Scheme = &cladev1.KvScheme_Layers{Layers: l}
	default:
		out.Scheme = &cladev1.KvScheme_Plain{Plain: k.Plain}
	}
	if k.Start > 0 {
		start := uint32(k.Start)
		out.Start = &start
	}
	return out
}

// KVFromProto reads a scheme from the wire, held to the same bounds as a spelling.
func KVFromProto(p *cladev1.KvScheme) (KV, error) {
	var k KV
	switch s := p.GetScheme().(type) {
	case *cladev1.KvScheme_Plain:
		k.Plain = s.Plain
	case *cladev1.KvScheme_Affine:
		k.Bits, k.Group = int64(s.Affine.GetBits()), int64(s.Affine.GetGroup())
	case *cladev1.KvScheme_Turbo:
		k.K, k.V = int64(s.Turbo.GetKBits()), int64(s.Turbo.GetVBits())
	case *cladev1.KvScheme_Layers:
		for _, l := range s.Layers.GetLayers() {
			k.Layers = append(k.Layers, artifact.KVLayer{Layer: int64(l.GetLayer()), Bits: int64(l.GetAffine().GetBits()), Group: int64(l.GetAffine().GetGroup())})
		}
	}
	k.Start = int64(p.GetStart())
	again, err := ParseKV(k.String())
	if err != nil {
		return KV{}, err
	}
	return again, nil
}

// of is how the scheme stores layer i; element is the bytes of the compute dtype.
func (k KV) of(i int, l LayerCache, element int64) KVBytes {
	plain := KVBytes{Element: element}
	switch {
	case l.Kind == LinearLayer:
		return plain
	case k.Plain == F32KV:
		return KVBytes{Element: 4}
	case k.Plain == BF16KV:
		return KVBytes{Element: halfBytes}
	case k.K > 0 && l.Kind == FullLayer:
		return KVBytes{Keys: k.K, Values: k.V}
	case k.Bits > 0:
		return KVBytes{Bits: k.Bits, Group: k.Group}
	}
	for _, e := range k.Layers {
		if e.Layer == int64(i) {
			return KVBytes{Bits: e.Bits, Group: e.Group}
		}
	}
	return plain
}

// SchemeBytes is what rows sequences of context tokens keep under a scheme; element is the bytes of the compute dtype.
// Before its start a scheme stores as the model computes.
func (g Geometry) SchemeBytes(context, rows int64, k KV, element int64) int64 {
	if k.Start > 0 && context <= k.Start {
		k = KV{Plain: NativeKV}
	}
	total := int64(0)
	for i, l := range g.Layers {
		one := Geometry{Layers: []LayerCache{l}}
		total += one.Bytes(context, rows, k.of(i, l, element))
	}
	return total
}
