package plugin

import (
	"context"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Family is what a plugin's main hands to Main.
type Family struct {
	// Manifest is the plugin's plugin.yaml, embedded.
	Manifest []byte
	// Tables lists the graphs for every family graph id of the manifest.
	Tables []*cladev1.GraphTable
	// Options names every field of GenerateStart, ScoreStart and Composition that the Backend honours, by its path inside
	// that message: "device", "kv.plain", "sampling.top_k", "constraint.json_schema", and "media" for MediaChunks. A
	// message whose own fields carry presence is walked; one that has none (Penalty, Logprobs) is one option.
	Options         []*cladev1.Option
	Implementations []*cladev1.Implementation
	// Kernels reports the kernels and their self-tests; nil means none. It is called by Describe and must not need a
	// runtime (SELF_TEST_NOT_RUN before one is loaded).
	Kernels func() []*cladev1.Kernel
	// Backend is nil for a family that is only announced: RPCs that need it are refused by name.
	Backend Backend
}

// Backend plans and opens models. Its calls never overlap, except that Inspect and Plan may run while a Model works.
type Backend interface {
	// LoadRuntime opens the runtime in dir; called once, at the first Plan or Open.
	LoadRuntime(dir string) (*cladev1.Runtime, []*cladev1.Device, error)
	// Inspect reads headers only.
	Inspect(ctx context.Context, req *cladev1.InspectRequest) (*cladev1.InspectResponse, error)
	// Plan reads headers only and is a pure function of req, the files and the machine: Open calls it again and refuses a
	// difference.
	Plan(ctx context.Context, req *cladev1.PlanRequest) (*cladev1.Plan, error)
	// Open loads the model; report may be called with load events from any goroutine until Open returns.
	Open(ctx context.Context, req *cladev1.OpenRequest, report func(*cladev1.OpenResponse)) (Model, error)
}

// Model is one open model. Generate and Score may be called concurrently. A Model that can spend more than a minute between two
// events also implements Progresser, or the host takes it for hung.
type Model interface {
	Facts() *cladev1.ModelFacts
	// Generate runs job and emits prefill, steps and, last, finish. What is emitted belongs to the callee. emit blocks
	// when the host is slow and returns an error once the request is over.
	Generate(ctx context.Context, job *GenerateJob, emit func(*cladev1.GenerateResponse) error) error
	// Score emits frames (see FrameRow) and, last, done.
	Score(ctx context.Context, job *ScoreJob, emit func(*cladev1.ScoreResponse) error) error
	Stats() *cladev1.StatsResponse
	// Tune sets the share of threads and returns what is in force.
	Tune(ctx context.Context, threads uint32) (uint32, error)
	Close() error
}

// Adapter is a Model whose requests choose adapters that are loaded and unloaded meanwhile. A Family that declares the option "adapter"
// makes such Models. Adapters runs beside Generate and Score.
type Adapter interface {
	Adapters(ctx context.Context, req *cladev1.AdaptersRequest) (*cladev1.AdaptersResponse, error)
}

// Progresser supplies the counts of the heartbeat: they advance while the Model is alive.
type Progresser interface {
	Progress() (evaluations, tokens uint64)
}

// GenerateJob is one request with its prompt assembled.
type GenerateJob struct {
	Start *cladev1.GenerateStart
	IDs   []int32
	Media []Media
	// Control carries stop_at; a cancel ends the context instead. It is never closed.
	Control <-chan *cladev1.Control
}

// ScoreJob is one Score request with its ids assembled.
type ScoreJob struct {
	Start *cladev1.ScoreStart
	IDs   []int32
}

// Media is one decoded media item of a prompt.
type Media struct {
	// Type is image/rgb8 or audio/f32le-16k.
	Type          string
	Width, Height int
	// Position in the ids where the item's placeholder begins.
	Position int
	Data     []byte
}
