package loader

import (
	"github.com/clademl/clade/sdk/contract"
)

// Residence is how a cell of the matrix holds weights.
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
var matrix = map[string]map[string]Residence{
	"safetensors": {"autoregressive": Resident, "diffusion": Resident, "encoder-decoder": Speech},
	"gguf":        {"autoregressive": Resident, "diffusion": Resident, "encoder-decoder": Speech},
	"colibri":     {"autoregressive": Streamed, "diffusion": Streamed, "encoder-decoder": Speech},
}

// cellOf finds the matrix cell of a profile.
func cellOf(profileID, loader, loop string) (Residence, error) {
	cell, ok := matrix[loader][loop]
	if !ok {
		return "", contract.Errorf(contract.UnsupportedModelLoad, profileID, "no way to open loader %q with loop %q", loader, loop)
	}
	return cell, nil
}

// forText refuses a cell that has no token loop for text.
func (r Residence) forText(profileID string) error {
	if r == Speech {
		return contract.Errorf(contract.UnsupportedModelLoad, profileID, "a speech model does not generate text").
			WithNext("`clade transcribe` is its verb; it comes with 0.2.0")
	}
	return nil
}
