package engine

import (
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
)

// loadSources takes the kernels that are sources once the runtime is there.
func (b *Backend) loadSources() {
	loaded := kernels.GPU()
	if sources, err := kernels.LoadSources(b.runtime); err != nil {
		loaded = loaded.Without(err.Error())
	} else {
		loaded, b.sourceKernels = loaded.With(sources), sources
	}
	b.sources.Store(&loaded)
}

// weightKernels splits what the weights ask for into kernels of the library and, on a GPU that has them as sources, choices of those.
func (d *draft) weightKernels(b *Backend) (library []string, chosen []*cladev1.KernelChoice) {
	d.sources = nil
	for _, name := range d.Weights.Kernels() {
		k, ok := kernels.OnDevice(name, d.device.Name)
		if !ok || d.device.Kind != mlx.GPU {
			library = append(library, name)
			continue
		}
		for _, choice := range b.sources.Load().Choose(k.Name) {
			if d.kernelPolicy == kernelsOff {
				choice.Native, choice.Reason = false, "kernels=off"
			}
			if choice.Native {
				d.sources = b.sourceKernels
			}
			chosen = append(chosen, choice)
		}
	}
	return library, chosen
}
