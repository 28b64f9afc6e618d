package engine

import (
	"context"
	"fmt"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/prefix"
	"github.com/clademl/clade/sdk/tokenizer"
)

// disk opens the folder of a composition that has one, unless the plan left no memory to use it from.
func (b *Backend) disk(spec *cladev1.ModelSpec, d *draft, plan *cladev1.Plan) (*Disk, error) {
	if d.diskBytes == 0 || lineOf(plan, prefixes) == 0 {
		return nil, nil
	}
	files, err := prefix.OpenDisk(d.diskDir, d.diskBytes)
	if err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, "prefix_disk", "%w", err).
			WithNext("name another folder (model.prefix_disk_dir), or leave --prefix-disk out")
	}
	path := spec.Artifacts[0].Path
	label := fmt.Sprintf("%s %s %s", filepath.Base(path), d.device.Name, d.dtype)
	return &Disk{Disk: files, Label: label, Identity: func(ctx context.Context) (prefix.Identity, error) {
		return b.identity(ctx, files, spec, d)
	}}, nil
}

// Revision is raised with every change of the sdk after which a model may compute other values: reading weights, attention, what
// graphs are made of. Kernels and graphs have revisions of their own.
const Revision = 1

// identity names all but the tokens that keys and values depend on. Revisions stand for programs, so that an update that changes no
// result keeps what is there.
func (b *Backend) identity(ctx context.Context, files *prefix.Disk, spec *cladev1.ModelSpec, d *draft) (prefix.Identity, error) {
	path := spec.Artifacts[0].Path
	sum, err := artifactSum(ctx, files, path)
	if err != nil {
		return nil, err
	}
	stored := &cladev1.Composition{Kv: spec.Composition.GetKv()}
	if d.window > 0 {
		stored.KvWindow, stored.KvKeep = spec.Composition.KvWindow, spec.Composition.KvKeep
	}
	scheme, err := proto.MarshalOptions{Deterministic: true}.Marshal(stored)
	if err != nil {
		return nil, err
	}
	info := b.runtime.Info()
	id := prefix.Identity{
		"engine", fmt.Sprint(Revision), "artifact", sum, "tokenizer", tokenizerDigest(path), "config", spec.ParsedConfigJson,
		"graph", spec.Graph, d.graph.ID, b.revision(d.graph),
		"runtime", info.MLX, info.MLXC, info.Variant, "device", d.device.Name, "dtype", d.dtype.String(), "kv", string(scheme),
	}
	if d.library == nil {
		if d.sources != nil {
			id = append(id, "sources", d.sources.Revision())
		}
		return append(id, "stock"), nil
	}
	revision, err := d.library.Revision()
	if err != nil {
		return nil, err
	}
	id = append(id, "kernels", revision, fmt.Sprint(d.target().Int8))
	for _, k := range d.kernels {
		id = append(id, k.Name, fmt.Sprint(k.Native))
	}
	if len(d.own) > 0 {
		id = append(id, "own kernels", b.family.manifest.Name, b.family.manifest.Version)
	}
	return id, nil
}

// revision is the graph's, or, for one that states none, the plugin's version.
func (b *Backend) revision(g Graph) string {
	if g.Revision > 0 {
		return fmt.Sprint(g.Revision)
	}
	return b.family.manifest.Name + " " + b.family.manifest.Version
}

// artifactSum is a digest of the model's files. It is kept beside the runs, as long as the system tells that the files are as they
// were: a large model is read once for it.
func artifactSum(ctx context.Context, files *prefix.Disk, path string) (string, error) {
	stamp, settled, err := artifact.Stamp(path)
	if err != nil {
		return "", err
	}
	key := prefix.Named("files " + stamp)
	if settled {
		if _, body, ok := files.Get(key); ok {
			return string(body), nil
		}
	}
	sum, err := new(artifact.Identities).Of(ctx, "prefix", path)
	if err == nil && settled {
		err = files.Put(key, prefix.Stored{Label: "digests of models"}, []byte(sum))
	}
	return sum, err
}

// tokenizerDigest is of what the model's ids mean; a model of ids alone has none.
func tokenizerDigest(path string) string {
	a, err := artifact.Open(path)
	if err != nil {
		return "unread"
	}
	defer func() { _ = a.Close() }() // only read
	t, err := tokenizer.FromArtifact(a)
	if err != nil {
		return "none"
	}
	return t.Digest()
}
