package engine

import (
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
)

// OwnKernels is a Model whose graph uses kernels of the plugin's own library: it gets the operations that the plan has as native,
// by kernel name, before its first forward, and runs its fallback for the others.
type OwnKernels interface {
	UseKernels(operations map[string]*mlx.Operation)
}

// loadOwn opens the plugin's own library once the runtime is there.
func (b *Backend) loadOwn() {
	if b.family.Own == nil {
		return
	}
	loaded := b.family.Own.Registry()
	if library, err := b.family.Own.Load(b.runtime); err != nil {
		loaded = loaded.Without(err.Error())
	} else {
		loaded, b.ownLib = loaded.With(library), library
	}
	b.own.Store(&loaded)
}

// chooseOwn adds the plugin's own kernels to the choices. Each stands alone: they share no packed weights.
func (d *draft) chooseOwn(b *Backend, names []string) {
	for _, k := range b.own.Load().Choose(names...) {
		switch {
		case d.kernelPolicy == kernelsOff:
			k.Native, k.Reason = false, "kernels=off"
		case d.device.Kind != mlx.CPU:
			k.Native, k.Reason = false, "there is none for "+d.device.Name
		}
		if k.Native {
			if d.own == nil {
				d.own = map[string]*mlx.Operation{}
			}
			d.own[k.Name] = b.ownLib.Operation(k.Name)
		}
		d.kernels = append(d.kernels, k)
	}
}

// giveOwn hands a model the operations that its plan has as native.
func (d *draft) giveOwn(m Model) {
	if u, ok := m.(OwnKernels); ok {
		u.UseKernels(d.own)
	}
}

var _ kernels.Library = (*kernels.OwnLibrary)(nil)
