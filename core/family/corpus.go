package family

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/clademl/clade/sdk/artifact"
)

// corpusText is one model a line: public configs in their real shape, of every family and of models that no family takes.
//
//go:embed corpus.jsonl
var corpusText []byte

// Sample is one model of the corpus.
type Sample struct {
	Name string
	// Graph is the family that takes it; empty when none does.
	Graph string
	// Format is the artifact's, safetensors unless it says otherwise; Path a folder that tells where it came from.
	Format artifact.Format
	Path   string
	Config artifact.Config
	// ConfigJSON and KVConfigJSON are the files as written; the latter nil when there is none.
	ConfigJSON, KVConfigJSON []byte
}

// Corpus is what records are held against each other by. It is read once.
var Corpus = sync.OnceValues(readCorpus)

func readCorpus() ([]Sample, error) {
	var out []Sample
	lines := bufio.NewScanner(bytes.NewReader(corpusText))
	lines.Buffer(nil, len(corpusText)+1)
	for lines.Scan() {
		var row struct {
			Name, Graph, Format, Path string
			Config                    json.RawMessage
			KVConfig                  json.RawMessage `json:"kv_config"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("corpus line %d: %w", len(out)+1, err)
		}
		cfg, err := artifact.ParseConfig(row.Name, row.Config)
		if err != nil {
			return nil, err
		}
		s := Sample{
			Name: row.Name, Graph: row.Graph, Format: artifact.Safetensors, Path: row.Path, Config: cfg, ConfigJSON: row.Config,
			KVConfigJSON: row.KVConfig,
		}
		if row.Format != "" {
			s.Format = artifact.Format(row.Format)
		}
		out = append(out, s)
	}
	return out, lines.Err()
}
