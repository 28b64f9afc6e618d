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

// checkIndex compares the index file, when there is one, with what the headers say: each name it lists must be there, in
// the shard it names, and each shard it names must exist. Tensors it does not list are accepted, as loaders do.
func (a *Artifact) checkIndex() error {
	if a.Format != Safetensors || !a.HasFile(indexName) {
		return nil
	}
	data, err := readSmall(a.Path, indexName, sideFileLimit)
	if err != nil {
		return err
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
			return a.checkIndexed(tensor, shard)
		})
	})
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return asCorrupt(indexName, "", err)
	}
	return nil
}

func (a *Artifact) checkIndexed(tensor, shard string) error {
	if _, open := a.files[shard]; !open {
		return corrupt(indexName, tensor, "lies in %s, which is not there", clip(shard))
	}
	i, ok := a.index[tensor]
	switch {
	case !ok:
		return corrupt(indexName, tensor, "is listed in %s but that file does not hold it", clip(shard))
	case a.tensors[i].File != shard:
		return corrupt(indexName, tensor, "is listed in %s but lies in %s", clip(shard), a.tensors[i].File)
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
