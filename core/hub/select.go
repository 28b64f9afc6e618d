package hub

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// Reference is what a person writes to name a hub model: ORG/NAME, ORG/NAME:QUANT or ORG/NAME/FILE.gguf.
type Reference struct {
	ID string
	// File is one file of it; Quant a part of one GGUF file's name. At most one is set.
	File, Quant string
}

// ParseReference reads a hub model's name.
func ParseReference(s string) (Reference, error) {
	s = strings.TrimPrefix(s, "hf.co/")
	id, quant, hasQuant := strings.Cut(s, ":")
	parts := strings.SplitN(id, "/", 3)
	if len(parts) < 2 {
		return Reference{}, checkRepoID(s)
	}
	ref := Reference{ID: parts[0] + "/" + parts[1], Quant: quant}
	if err := checkRepoID(ref.ID); err != nil {
		return Reference{}, err
	}
	if len(parts) == 3 {
		ref.File = parts[2]
		if hasQuant || !safeName(ref.File) || !isGGUF(ref.File) {
			return Reference{}, contract.Errorf(contract.InvalidArgument, s, "%s is not a .gguf file's name", ref.File)
		}
	}
	if hasQuant && !safePart(quant) {
		return Reference{}, contract.Errorf(contract.InvalidArgument, s, "%q is not a quantization's name", quant)
	}
	return ref, nil
}

// needed are the kinds of files that a model of safetensors is made of.
var needed = map[string]bool{".safetensors": true, ".json": true, ".jinja": true, ".txt": true, ".model": true, ".tiktoken": true}

// part matches one file of a model that is split into several.
var part = regexp.MustCompile(`-(\d{5})-of-(\d{5})\.gguf$`)

// Choose picks the files that make the referenced model: for a GGUF its file or its parts, else the weights in
// safetensors with everything that describes them. What other programs need is left out.
func (r Repository) Choose(ref Reference) ([]File, error) {
	var ggufs, weights, rest []File
	for _, f := range r.Files {
		switch ext := strings.ToLower(path.Ext(f.Path)); {
		case strings.HasPrefix(path.Base(f.Path), "."), strings.HasPrefix(path.Base(f.Path), "README"):
		case ext == ".gguf":
			ggufs = append(ggufs, f)
		case ext == ".safetensors":
			weights = append(weights, f)
		case needed[ext]:
			rest = append(rest, f)
		}
	}
	if ref.File == "" && ref.Quant == "" && len(weights) > 0 {
		return notForeign(append(weights, rest...)), nil
	}
	if len(ggufs) == 0 {
		if ref.File != "" || ref.Quant != "" {
			return nil, contract.Errorf(contract.NotFound, r.ID, "has no GGUF file")
		}
		return nil, contract.Errorf(contract.UnsupportedModel, r.ID, "has no weights in safetensors or GGUF").WithNext("look for a converted copy of it")
	}
	return chooseGGUF(r.ID, ggufs, ref)
}

// notForeign leaves folders out that hold the model in another program's layout.
func notForeign(files []File) []File {
	foreign := []string{"original/", "onnx/", "openvino/", "coreml/", "metal/"}
	return slices.DeleteFunc(files, func(f File) bool {
		return slices.ContainsFunc(foreign, func(dir string) bool { return strings.HasPrefix(f.Path, dir) })
	})
}

func chooseGGUF(id string, ggufs []File, ref Reference) ([]File, error) {
	wanted := func(f File) bool {
		switch {
		case ref.File != "":
			return f.Path == ref.File
		case ref.Quant != "":
			return hasQuant(f.Path, ref.Quant)
		}
		return !strings.HasPrefix(path.Base(f.Path), "mmproj")
	}
	models := map[string][]File{} // by name without the part
	var order []string
	for _, f := range ggufs {
		if !wanted(f) {
			continue
		}
		name := part.ReplaceAllString(f.Path, ".gguf")
		if ref.File != "" {
			name = f.Path
		}
		if models[name] == nil {
			order = append(order, name)
		}
		models[name] = append(models[name], f)
	}
	switch len(order) {
	case 1:
		return models[order[0]], nil
	case 0:
		return nil, contract.Errorf(contract.NotFound, id, "has no such GGUF file; it has %s", listed(ggufs))
	}
	return nil, contract.Errorf(contract.InvalidArgument, id, "has several GGUF files: %s", listed(ggufs)).
		WithNext("name one as %s:QUANT or %s/FILE.gguf", id, id)
}

// hasQuant looks for quant between the separators of a file's name, so that Q4_K does not match Q4_K_M.
func hasQuant(name, quant string) bool {
	name, quant = strings.ToLower(name), strings.ToLower(quant)
	for i := 0; ; {
		at := strings.Index(name[i:], quant)
		if at < 0 {
			return false
		}
		begin, end := i+at, i+at+len(quant)
		if (begin == 0 || strings.IndexByte("-./", name[begin-1]) >= 0) && (end == len(name) || strings.IndexByte("-./", name[end]) >= 0) {
			return true
		}
		i = begin + 1
	}
}

func listed(files []File) string {
	sorted := slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	var out []string
	for _, f := range sorted[:min(len(sorted), maxCandidates)] {
		out = append(out, f.Path)
	}
	if len(sorted) > maxCandidates {
		out = append(out, "...")
	}
	return strings.Join(out, ", ")
}
