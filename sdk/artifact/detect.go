package artifact

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// shardLimit bounds how many weight files one model may have; the largest known has 191.
const shardLimit = 4096

var (
	mainShard    = regexp.MustCompile(`^model.*\.safetensors$`)
	colibriShard = regexp.MustCompile(`^out-(mtp-|idx-)?[0-9]+\.safetensors$`)
)

// singleWeights is the name that MLX Whisper checkpoints give their only weight file.
const singleWeights = "weights.safetensors"

// layout is what detect found: the format and the absolute paths of the weight files, sorted.
type layout struct {
	format Format
	files  []string
}

// detect decides the format from names alone: out-N shards are Colibri; model*.safetensors, or weights.safetensors, are
// safetensors; else exactly one .gguf file.
func detect(path string) (layout, error) {
	info, err := os.Stat(path)
	if err != nil {
		return layout{}, notThere(path, err)
	}
	if !info.IsDir() {
		if !strings.EqualFold(filepath.Ext(path), ".gguf") {
			return layout{}, contract.Errorf(contract.InvalidArgument, path, "is not a model").
				WithNext("give a directory or a .gguf file")
		}
		return layout{GGUF, []string{path}}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return layout{}, notThere(path, err)
	}
	var shards, colibri, ggufs, single []string
	mains := 0
	for _, e := range entries {
		name := e.Name()
		full := filepath.Join(path, name)
		switch m := colibriShard.FindStringSubmatch(name); {
		case m != nil:
			colibri = append(colibri, full)
			if m[1] == "" {
				mains++
			}
		case mainShard.MatchString(name):
			shards = append(shards, full)
		case name == singleWeights:
			single = append(single, full)
		case strings.EqualFold(filepath.Ext(name), ".gguf"):
			ggufs = append(ggufs, full)
		}
	}
	return choose(path, shards, colibri, mains, single, ggufs)
}

func choose(path string, shards, colibri []string, mains int, single, ggufs []string) (layout, error) {
	if len(shards) == 0 {
		shards = single
	}
	switch {
	case len(shards) > shardLimit || len(colibri) > shardLimit:
		return layout{}, corrupt(path, "", "more than %d weight files", shardLimit)
	case len(colibri) > 0 && len(shards) > 0:
		return layout{}, corrupt(path, "", "holds both %s and %s: Colibri or safetensors?",
			filepath.Base(colibri[0]), filepath.Base(shards[0]))
	case len(colibri) > 0 && mains == 0:
		return layout{}, contract.Errorf(contract.NotFound, filepath.Join(path, "out-00000.safetensors"),
			"a Colibri directory needs at least one main shard")
	case len(colibri) > 0:
		return layout{Colibri, colibri}, nil
	case len(shards) > 0:
		return layout{Safetensors, shards}, nil
	case len(ggufs) == 1:
		return layout{GGUF, ggufs}, nil
	case len(ggufs) > 1:
		return layout{}, contract.Errorf(contract.InvalidArgument, path, "holds %d .gguf files", len(ggufs)).
			WithNext("name one, such as %s", ggufs[0])
	}
	return layout{}, contract.Errorf(contract.NotFound, path, "no model*.safetensors, out-*.safetensors or .gguf file in this directory")
}

// indexName is the file in which transformers lists each tensor's shard.
const indexName = "model.safetensors.index.json"

// indexed is a tensor of the index and the file that it lies in.
type indexed struct{ tensor, shard string }

// readIndex reads the index file, when there is one. Each name it lists must be there, in the shard it names, and each shard it
// names must exist. Tensors it does not list are accepted, as loaders do.
func (a *Artifact) readIndex() (listed []indexed, err error) {
	if a.Format != Safetensors || !a.HasFile(indexName) {
		return nil, nil
	}
	data, err := readSmall(a.Path, indexName, sideFileLimit)
	if err != nil {
		return nil, err
	}
	r := &jsonReader{buf: data}
	err = r.object(func(key string) error {
		if key != "weight_map" {
			return r.skip()
		}
		return r.object(func(tensor string) error {
			shard, err := r.text()
			if err != nil {
				return err
			}
			listed = append(listed, indexed{tensor, shard})
			return nil
		})
	})
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, asCorrupt(indexName, "", err)
	}
	return listed, nil
}

// checkIndex holds the index to the files that are there; what their headers hold was compared as they were read.
func (a *Artifact) checkIndex(listed []indexed) error {
	for _, want := range listed {
		if _, open := a.files[want.shard]; !open {
			return corrupt(indexName, want.tensor, "lies in %s, which is not there", clip(want.shard))
		}
	}
	return nil
}

// readConfigs fills config and generation config of a directory.
func (a *Artifact) readConfigs() error {
	data, err := readSmall(a.Path, "config.json", configLimit)
	if err != nil {
		return err
	}
	if a.config, err = ParseConfig("config.json", data); err != nil {
		return err
	}
	if !a.HasFile("generation_config.json") {
		a.generation = Config{name: "generation_config.json"}
		return nil
	}
	if data, err = readSmall(a.Path, "generation_config.json", configLimit); err != nil {
		return err
	}
	a.generation, err = ParseConfig("generation_config.json", data)
	return err
}
