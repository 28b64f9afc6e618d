package loader

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/artifact/lora"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// AdapterWish names an adapter to load.
type AdapterWish struct {
	ID, Path string
	Scale    *float64 // nil: 1
}

// ParseAdapter reads [NAME=]FOLDER[:SCALE]. Without a name the folder's own is taken.
func ParseAdapter(text string) (AdapterWish, error) {
	w := AdapterWish{Path: text}
	if id, path, named := strings.Cut(text, "="); named && contract.CheckAdapterID(id) == nil {
		w.ID, w.Path = id, path
	}
	if at := strings.LastIndex(w.Path, ":"); at > 0 {
		if v, err := strconv.ParseFloat(w.Path[at+1:], 64); err == nil {
			w.Path, w.Scale = w.Path[:at], &v
		}
	}
	abs, err := filepath.Abs(w.Path)
	if err != nil || w.Path == "" {
		return w, contract.Errorf(contract.InvalidArgument, "adapter", "%q is not a usable folder", text)
	}
	w.Path = abs
	if w.ID == "" {
		w.ID = filepath.Base(abs)
	}
	return w, w.check()
}

func (w AdapterWish) check() error {
	if err := contract.CheckAdapterID(w.ID); err != nil {
		return contract.Errorf(contract.InvalidArgument, "adapter", "%w", err).WithNext("give it a name: NAME=FOLDER")
	}
	if w.Scale != nil {
		return contract.CheckAdapterScale(w.ID, *w.Scale)
	}
	return nil
}

// adapter knows one from its headers.
func adapter(w AdapterWish) (Auxiliary, error) {
	out := Auxiliary{Role: cladev1.Role_ROLE_ADAPTER, Path: w.Path, Format: string(artifact.Safetensors), ID: w.ID, Scale: w.Scale}
	a, err := lora.Open(w.Path)
	if err != nil {
		return out, err
	}
	out.Kind, out.WeightBytes = string(a.Format), a.StoredBytes()
	return out, a.Close()
}
