package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

func environ() []string { return os.Environ() }

var streamDesc = &grpc.StreamDesc{ServerStreams: true}

func describeChecks() []check {
	return []check{
		{"describe", "what it says of itself is whole: name, versions, manifest, graph tables, options, RPCs", (*subject).checkDescribe},
		{"describe-json", "`PLUGIN describe --json` says the same without host and runtime", (*subject).checkDescribeJSON},
		{"undeclared-rpcs", "an RPC that it does not declare answers UNIMPLEMENTED", (*subject).checkUndeclaredRPCs},
		{"unknown-fields", "a field that it does not know is refused by number, in every message", (*subject).checkUnknownFields},
		{"announced", "a family that is only announced is refused by name", (*subject).checkAnnounced},
		{"before-open", "what needs a model says so before one is open", (*subject).checkBeforeOpen},
	}
}

func (s *subject) checkDescribe(context.Context) error {
	d := s.describe
	var wrong []string
	hold := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	hold(d.Name == s.manifest.Name && d.Version == s.manifest.Version, "it is %s %s, its manifest is of %s %s", d.Name, d.Version,
		s.manifest.Name, s.manifest.Version)
	hold(slices.Contains(d.ContractVersions, contract.Major), "contract_versions %v lack %d", d.ContractVersions, contract.Major)
	hold(slices.Equal(d.ContractVersions, s.manifest.Contract), "contract_versions are %v, its manifest says %v", d.ContractVersions, s.manifest.Contract)
	hold(s.manifest.JSON() == d.ManifestJson, "manifest_json is not in the canonical form (keys in the order of the schema, no spaces)")
	hold(d.Platform == "" || d.Platform == runtime.GOOS+"/"+runtime.GOARCH, "platform %q on %s/%s", d.Platform, runtime.GOOS, runtime.GOARCH)
	for _, t := range d.GraphTables {
		if err := s.manifest.CheckTable(t); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	for _, r := range s.manifest.Families {
		has := slices.ContainsFunc(d.GraphTables, func(t *cladev1.GraphTable) bool { return t.Graph == r.Graph })
		hold(has || r.Status != family.Available, "no graph table for %s", r.Graph)
	}
	known := optionPaths()
	for path := range s.declared {
		hold(known[path], "option %q is no field of GenerateStart, ScoreStart, EmbedStart, TranscribeStart or Composition", path)
	}
	methods := cladev1.PluginService_ServiceDesc
	for rpc := range s.rpcs {
		has := slices.ContainsFunc(methods.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == rpc }) ||
			slices.ContainsFunc(methods.Streams, func(m grpc.StreamDesc) bool { return m.StreamName == rpc })
		hold(has, "%q is no RPC of the contract", rpc)
	}
	if s.runs() {
		for _, rpc := range []string{"Plan", "Open", "Stats"} {
			hold(s.rpcs[rpc], "a plugin that runs models serves %s", rpc)
		}
		if s.rpcs["Generate"] {
			for _, o := range []string{"max_tokens", "stop_token_ids"} {
				hold(s.declared[o], "a plugin that generates honours %s: a host always sends it", o)
			}
		}
	}
	for _, k := range d.Kernels {
		hold(k.Reason != "" || k.SelfTest == cladev1.SelfTest_SELF_TEST_PASSED || k.SelfTest == cladev1.SelfTest_SELF_TEST_NOT_RUN,
			"kernel %s: %s without a reason", k.Name, k.SelfTest)
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

func (s *subject) checkDescribeJSON(ctx context.Context) error {
	out, _, code, err := s.byHand(ctx, "describe", "--json")
	if err != nil || code != 0 {
		return fmt.Errorf("exits with code %d: %w", code, errors.Join(err))
	}
	d := &cladev1.DescribeResponse{}
	if err := protojson.Unmarshal([]byte(out), d); err != nil {
		return fmt.Errorf("is not a DescribeResponse in JSON: %w", err)
	}
	for _, m := range []*cladev1.DescribeResponse{d, s.describe} {
		m.Runtime, m.Devices = nil, nil
		slices.SortFunc(m.Options, func(a, b *cladev1.Option) int { return strings.Compare(a.Path, b.Path) })
	}
	if !proto.Equal(d, s.describe) {
		return errors.New("differs from what Describe answers")
	}
	return nil
}

func (s *subject) checkUndeclaredRPCs(ctx context.Context) error {
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	ctx, cancel := context.WithTimeout(ctx, s.limits.quick)
	defer cancel()
	call := map[string]func() error{
		"Tokenize":   func() error { _, err := p.rpc.Tokenize(ctx, &cladev1.TokenizeRequest{}); return err },
		"Detokenize": func() error { _, err := p.rpc.Detokenize(ctx, &cladev1.DetokenizeRequest{}); return err },
		"Adapters":   func() error { _, err := p.rpc.Adapters(ctx, &cladev1.AdaptersRequest{}); return err },
		"Embed": func() error {
			stream, err := p.rpc.Embed(ctx)
			if err == nil {
				_, err = stream.CloseAndRecv()
			}
			return err
		},
		"Transcribe": func() error {
			stream, err := p.rpc.Transcribe(ctx)
			if err == nil {
				_ = stream.CloseSend()
				_, err = stream.Recv()
			}
			return err
		},
		"Train": func() error {
			stream, err := p.rpc.Train(ctx, &cladev1.TrainRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	}
	var names []string
	for name := range call {
		names = append(names, name)
	}
	slices.Sort(names)
	return each(names, func(name string) error {
		err := call[name]()
		switch code := status.Code(err); {
		case s.rpcs[name] && code == codes.Unimplemented:
			return fmt.Errorf("%s is declared and answers UNIMPLEMENTED", name)
		case !s.rpcs[name] && code != codes.Unimplemented:
			return fmt.Errorf("%s is not declared and answers %s, not UNIMPLEMENTED", name, code)
		}
		return p.alive()
	})
}

func (s *subject) checkAnnounced(ctx context.Context) error {
	var announced []*family.Record
	for _, r := range s.manifest.Families {
		if r.Status == family.Announced {
			announced = append(announced, r)
		}
	}
	if len(announced) == 0 {
		return undeclared("it announces nothing")
	}
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	return each(announced, func(r *family.Record) error {
		spec := &cladev1.ModelSpec{
			Graph: r.Graph, Artifacts: []*cladev1.Artifact{{Role: cladev1.Role_ROLE_TARGET, Path: "/nonexistent", Format: r.Loaders[0]}},
			Profile: &cladev1.Profile{Id: r.Profile, Loader: r.Loaders[0], Loop: string(r.Loop)}, Composition: &cladev1.Composition{},
		}
		_, err := s.plan(ctx, p, spec)
		if wrong := refusal(err, []contract.Kind{contract.UnsupportedModel}, ""); wrong != nil {
			return fmt.Errorf("a model of %s %w", r.Graph, wrong)
		}
		var e *contract.Error
		if errors.As(err, &e); e.Next == "" {
			return fmt.Errorf("a model of %s is refused (%s) without a next step", r.Graph, e.Error())
		}
		return p.alive()
	})
}

func (s *subject) checkBeforeOpen(ctx context.Context) error {
	if !s.runs() {
		return undeclared("it runs no family")
	}
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	quick, cancel := context.WithTimeout(ctx, s.limits.quick)
	defer cancel()
	calls := map[string]func() error{
		"Generate": func() error { _, err := s.generate(quick, p, ask{ids: []int32{1}}); return err },
		"Score": func() error {
			_, err := s.score(quick, p, []int32{1}, cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS)
			return err
		},
		"Tune": func() error {
			_, err := p.rpc.Tune(quick, &cladev1.TuneRequest{Threads: proto.Uint32(1)})
			return contract.FromStatus(err)
		},
	}
	return each([]string{"Generate", "Score", "Tune"}, func(name string) error {
		if !s.rpcs[name] {
			return nil
		}
		if err := refusal(calls[name](), []contract.Kind{contract.Unavailable}, ""); err != nil {
			return fmt.Errorf("%s without a model %w", name, err)
		}
		return p.alive()
	})
}
