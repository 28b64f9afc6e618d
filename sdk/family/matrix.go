package family

import (
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// Residence is how a cell of the loader matrix holds weights.
type Residence string

// The cells' kinds.
const (
	// Resident weights are all in memory.
	Resident Residence = "resident"
	// Streamed weights are read as experts are needed.
	Streamed Residence = "streamed"
	// Speech models transcribe; they never enter the token loops.
	Speech Residence = "speech"
)

// matrix is [loader][loop]; a pairing that is not in it does not exist.
var matrix = map[artifact.Format]map[Loop]Residence{
	artifact.Safetensors: {Autoregressive: Resident, Diffusion: Resident, EncoderDecoder: Speech},
	artifact.GGUF:        {Autoregressive: Resident, Diffusion: Resident, EncoderDecoder: Speech},
	artifact.Colibri:     {Autoregressive: Streamed, Diffusion: Streamed, EncoderDecoder: Speech},
}

// CellOf finds the matrix cell of a profile.
func CellOf(profile, loader, loop string) (Residence, error) {
	cell, ok := matrix[artifact.Format(loader)][Loop(loop)]
	if !ok {
		return "", contract.Errorf(contract.UnsupportedModelLoad, profile, "no way to open loader %q with loop %q", loader, loop)
	}
	return cell, nil
}

// ForText refuses a cell that has no token loop for text.
func (r Residence) ForText(profile string) error {
	if r == Speech {
		return contract.Errorf(contract.UnsupportedModelLoad, profile, "a speech model does not generate text").
			WithNext("transcribe audio with it: clade transcribe MODEL AUDIO")
	}
	return nil
}

// ForSpeech refuses a cell that does not transcribe.
func (r Residence) ForSpeech(profile string) error {
	if r != Speech {
		return contract.Errorf(contract.UnsupportedModelLoad, profile, "a text model does not transcribe").
			WithNext("chat with it: clade run MODEL")
	}
	return nil
}

// ForImplementation refuses a cell whose graph nobody may replace: streamed weights are bound to the graph that reads them.
func (r Residence) ForImplementation(profile, implementation string) error {
	if r == Resident {
		return nil
	}
	return contract.Errorf(contract.UnsupportedModelLoad, profile, "implementation %s cannot stand in for a %s graph; refusing to fall back",
		implementation, r).WithNext("leave the implementation out")
}

// ForCreate refuses a cell that cannot be made of weights that are open already: streamed weights are opened by their
// folder, speech models by their own opener.
func (r Residence) ForCreate(profile string) error {
	if r == Streamed {
		return contract.Errorf(contract.UnsupportedModelLoad, profile, "streamed weights are opened by their folder, not handed over").
			WithNext("open the folder")
	}
	return r.ForText(profile)
}
