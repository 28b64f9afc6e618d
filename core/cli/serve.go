package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/core/serve"
	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/core/serve/openai"
	"github.com/clademl/clade/core/serve/trace"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve MODEL...", Short: "Serve models over the OpenAI and Anthropic APIs",
		Long: "Chats, completions, messages (JSON and server-sent events) and embeddings below /v1, GET /v1/models, /health and /metrics;\n" +
			"docs/command-line.md lists every endpoint. Clients choose an adapter by its name in the place of the model's. Each\n" +
			"model has a plugin process of its own. Listens on loopback; another address needs --api-key or --insecure-no-auth. SIGTERM drains.",
	}
	model, flags := a.addModelFlags(cmd), cmd.Flags()
	a.bind(flags, "host", "serve.host", "address to listen on (default 127.0.0.1)")
	a.bind(flags, "port", "serve.port", "port to listen on, 0 for any free one (default 8080)")
	a.bind(flags, "api-key", "serve.api_key", "key that clients must send; better set as CLADE_SERVE_API_KEY")
	a.bindSwitch(flags, "insecure-no-auth", "serve.insecure_no_auth", "serve on a reachable address without a key")
	a.bind(flags, "drain-timeout", "serve.drain_timeout", "time running requests get after SIGTERM (default 30s)")
	a.bind(flags, "max-request-bytes", "serve.max_request_bytes", "largest request body (default 32MiB)")
	a.bind(flags, "keep-alive", "serve.keep_alive", "time after which an unused model is unloaded; 0: at once, -1: never (default 5m)")
	a.bindSwitch(flags, "lazy", "serve.lazy", "open a model at its first request instead of at start")
	a.bind(flags, "temperature", "serve.temperature", "temperature of requests that name none")
	a.bind(flags, "top-p", "serve.top_p", "top_p of requests that name none")
	a.bind(flags, "top-k", "serve.top_k", "top_k of requests that name none")
	a.bind(flags, "min-p", "serve.min_p", "min_p of requests that name none")
	a.bind(flags, "max-tokens", "serve.max_tokens", "max_tokens of requests that name none")
	a.bind(flags, "default-adapters", "serve.adapters", "adapters of requests that choose nothing: none, or names such as a+b:0.5 (default: every --adapter)")
	a.bind(flags, "adapter-dir", "serve.adapter_dir", "folder that clients may load adapters from while models are served; needs --adapter-memory")
	a.bind(flags, "volatile-headers", "serve.volatile_headers", "drop or keep: lines of system prompts that change with every request and tell the model nothing")
	a.bind(flags, "thinking", "serve.thinking", "on or off: whether models with a switch reason, in requests that say nothing of it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h, err := a.host()
		if err != nil {
			return err
		}
		models, err := a.servedModels(cmd.Context(), h, model, args)
		if err != nil {
			return err
		}
		c := h.config.Serve
		state, err := admin.Dir()
		if err != nil {
			h.log.Warn("server cannot be found by `clade ps`", "error", err)
		}
		tracer, err := trace.FromEnv(os.Getenv, Version)
		if err != nil {
			return err
		}
		defer tracer.Close()
		s, err := serve.New(serve.Options{
			Host: c.Host, Port: c.Port, APIKey: c.APIKey, AllowedHosts: c.AllowedHosts, InsecureNoAuth: c.InsecureNoAuth,
			DrainTimeout: c.DrainTimeout, MaxRequestBytes: c.MaxRequestBytes, Lazy: c.Lazy, KeepAlive: c.KeepAlive, StateDir: state, Logger: h.log,
			Tracer:          tracer,
			AdapterDir:      c.AdapterDir,
			VolatileHeaders: c.VolatileHeaders == "keep",
			Listening:       func(addr net.Addr) { _, _ = fmt.Fprintf(a.Err, "clade: listening on http://%s\n", addr) },
		}, models)
		if err != nil {
			return err
		}
		h.Ledger.Evictor = s.Evictor()
		return s.Run(cmd.Context())
	}
	return cmd
}

// servedModels resolves every MODEL before anything listens; each opens on its own.
func (a *app) servedModels(ctx context.Context, h *host, f *modelFlags, args []string) ([]serve.Served, error) {
	c := h.config.Serve
	defaults := generate.Settings{Temperature: c.Temperature, TopP: c.TopP, TopK: c.TopK, MinP: c.MinP, MaxTokens: c.MaxTokens}
	adapters, err := f.servedAdapters()
	if err != nil {
		return nil, err
	}
	if defaults.Adapter, err = defaultAdapters(h.config, adapters); err != nil {
		return nil, err
	}
	if c.AdapterDir != "" && h.config.Model.AdapterMemory == 0 {
		return nil, contract.Errorf(contract.InvalidArgument, "--adapter-dir", "no memory is set aside for adapters that clients load").WithNext("give --adapter-memory too")
	}
	if err := defaults.Check(); err != nil {
		return nil, err
	}
	thinking, err := onOff("serve.thinking", c.Thinking)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, contract.Errorf(contract.InvalidArgument, "MODEL", "no model to serve").WithNext("name at least one; downloading a starter comes with %s", nextVersion)
	}
	var out []serve.Served
	for _, arg := range args {
		m, err := h.local(ctx, arg)
		if err != nil {
			return nil, err
		}
		v := &versions{app: a, host: h, flags: f, path: m.Path, defaults: defaults, thinking: thinking}
		out = append(out, serve.Served{Name: m.ID, Key: keyOf(h, m.Path, f.wishes(h.config)), Open: v.open, Adapters: slices.Clone(adapters), Stale: v.stale, Beside: v.beside})
	}
	return out, nil
}

// engine is a loader's model as the server sees it, with the server's own settings below the request's.
type engine struct {
	*loader.Model
	defaults generate.Settings
	thinking *bool
}

// Prompt implements serve.Engine.
func (e engine) Prompt(c chat.Conversation) (generate.Prompt, error) {
	return e.ServerPrompt(c, e.thinking)
}

func (e engine) Generate(ctx context.Context, p generate.Prompt, request generate.Settings, emit func(generate.Delta) error) (generate.Result, error) {
	return e.GenerateLayers(ctx, p, generate.Layers{Request: request, Server: e.defaults}, emit)
}

// Embed implements serve.Engine.
func (e engine) Embed(ctx context.Context, q generate.EmbedRequest) (generate.Embeddings, error) {
	if q.Adapter == nil {
		q.Adapter = e.defaults.Adapter
	}
	return e.Model.Embed(ctx, q)
}

// Plain implements serve.Engine.
func (e engine) Plain() admin.Model { return e.Model }

func (e engine) Card() openai.Card {
	facts, planned := e.Facts(), e.Planned()
	return openai.Card{
		Family: planned.Family.Record.Label, Graph: planned.Family.Record.Graph, GraphEntry: facts.GetGraphEntry(), Loader: planned.Profile.GetLoader(),
		Device: facts.GetDevice(), DType: facts.GetDtype(), Context: facts.GetContextLength(),
		Plugin:       planned.Describe.GetName() + " " + planned.Describe.GetVersion(),
		Capabilities: planned.Profile.GetRequiredCapabilities(), Notes: notesOf(planned, facts),
	}
}

// notesOf are the host's, the plan's and the open model's notes, each once.
func notesOf(p *loader.Planned, facts *cladev1.ModelFacts) []string {
	var out []string
	for _, n := range slices.Concat(p.Notes, p.Plan.GetNotes(), facts.GetNotes()) {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}
