package tokenizer

import "github.com/clademl/clade/sdk/contract"

// Limits on what a file may ask for. The largest published tokenizer.json is about 40 MB with 262,144 tokens.
const (
	maxJSONBytes  = 256 << 20
	maxVocab      = 1 << 21
	maxMerges     = 1 << 22
	maxTokenBytes = 64 << 10
	maxNesting    = 8 // Sequences within Sequences
)

const (
	jsonFile     = "tokenizer.json"
	configFile   = "tokenizer_config.json"
	specialsFile = "special_tokens_map.json"
)

// corrupt is an error about one place in a tokenizer file.
func corrupt(subject, format string, args ...any) error {
	return contract.Errorf(contract.ArtifactCorrupt, subject, format, args...)
}

// unsupported is an error about a component that exists elsewhere but not here.
func unsupported(subject, format string, args ...any) error {
	return contract.Errorf(contract.UnsupportedModel, subject, format, args...)
}
