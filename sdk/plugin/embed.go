package plugin

import (
	"context"
	"strings"

	"google.golang.org/grpc"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// EmbedJob is one Embed request with its ids assembled.
type EmbedJob struct {
	Start *cladev1.EmbedStart
	IDs   []int32
}

// Embedder is a Model whose last hidden state stands for what it read. Embed may be called concurrently with everything else.
type Embedder interface {
	Embed(ctx context.Context, job *EmbedJob) (*cladev1.EmbedResponse, error)
}

// embeds reports whether a family of the manifest that runs declares embeddings: then the plugin declares the RPC.
func embeds(m *family.Manifest) bool { return len(embedding(m)) > 0 }

// embedding lists the graphs that give embeddings.
func embedding(m *family.Manifest) (graphs []string) {
	for _, r := range m.Families {
		if r.Embedding != nil && r.Status == family.Available {
			graphs = append(graphs, r.Graph)
		}
	}
	return graphs
}

// Embed answers the embedding of the ids: nothing is sampled.
func (s *Server) Embed(stream grpc.ClientStreamingServer[cladev1.EmbedRequest, cladev1.EmbedResponse]) error {
	if s.family.Backend == nil || !embeds(s.manifest) {
		return s.UnimplementedPluginServiceServer.Embed(stream)
	}
	r, err := s.embed(stream)
	if err != nil {
		return contract.ToStatus(err)
	}
	return stream.SendAndClose(r)
}

func (s *Server) embed(stream grpc.ClientStreamingServer[cladev1.EmbedRequest, cladev1.EmbedResponse]) (*cladev1.EmbedResponse, error) {
	model, err := s.opened()
	if err != nil {
		return nil, err
	}
	e, ok := model.(Embedder)
	if graph := model.Facts().GetGraph(); !ok || !s.graphEmbeds(graph) {
		return nil, contract.Errorf(contract.UnsupportedOption, "Embed", "graph %s gives no embeddings", graph).
			WithNext("open a model of %s", strings.Join(embedding(s.manifest), ", "))
	}
	ctx, end, err := s.begin(stream.Context())
	if err != nil {
		return nil, err
	}
	defer end()
	start, ids, err := readIDs(s, stream.Recv, model)
	if err != nil {
		return nil, err
	}
	job := &EmbedJob{Start: start, IDs: ids}
	var r *cladev1.EmbedResponse
	err = s.guard("Embed", func() (err error) {
		r, err = e.Embed(ctx, job)
		return err
	})
	if err = s.conclude(ctx, err, nil, r != nil); err != nil {
		return nil, err
	}
	return r, nil
}

func (s *Server) graphEmbeds(graph string) bool {
	r, ok := record(s.manifest, graph)
	return ok && r.Embedding != nil
}
