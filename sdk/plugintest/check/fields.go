package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// leaf is one option: the fields that lead to it from its message.
type leaf []protoreflect.FieldDescriptor

func (l leaf) path() string {
	out := ""
	for i, f := range l {
		if i > 0 {
			out += "."
		}
		out += string(f.Name())
	}
	return out
}

// refused holds an error to the rule of undeclared options: named by path, or, by a plugin of an older contract, by a number.
func (l leaf) refused(err error) error {
	kinds := []contract.Kind{contract.UnsupportedOption}
	wrong := refusal(err, kinds, l.path())
	for _, f := range l {
		if wrong != nil && refusal(err, kinds, fmt.Sprint(f.Number())) == nil {
			return nil
		}
	}
	return wrong
}

// leaves are the options of a message, as the contract counts them: a message whose own fields carry presence is walked, one
// that has none is one option, and a scalar without presence is structure.
func leaves(d protoreflect.MessageDescriptor, before leaf) []leaf {
	var out []leaf
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		here := append(slices.Clone(before), f)
		switch {
		case !f.HasPresence() && !f.IsList() && !f.IsMap():
		case f.Message() != nil && !f.IsList() && !f.IsMap() && hasPresence(f.Message()):
			out = append(out, leaves(f.Message(), here)...)
		default:
			out = append(out, here)
		}
	}
	return out
}

func hasPresence(d protoreflect.MessageDescriptor) bool {
	for i := range d.Fields().Len() {
		if d.Fields().Get(i).HasPresence() {
			return true
		}
	}
	return false
}

// optionPaths are all that the contract has.
func optionPaths() map[string]bool {
	out := map[string]bool{"media": true}
	for _, m := range []proto.Message{
		&cladev1.GenerateStart{}, &cladev1.ScoreStart{}, &cladev1.EmbedStart{}, &cladev1.TranscribeStart{}, &cladev1.Composition{},
	} {
		for _, l := range leaves(m.ProtoReflect().Descriptor(), nil) {
			out[l.path()] = true
		}
	}
	return out
}

// set gives the option a value that asks for something.
func (l leaf) set(m protoreflect.Message) {
	for _, f := range l[:len(l)-1] {
		m = m.Mutable(f).Message()
	}
	f := l[len(l)-1]
	switch {
	case f.IsMap():
		m.Mutable(f).Map().Set(protoreflect.ValueOfInt32(1).MapKey(), protoreflect.ValueOfFloat64(0.5))
	case f.IsList():
		m.Mutable(f).List().Append(some(f, m.NewField(f).List().NewElement()))
	default:
		m.Set(f, some(f, m.NewField(f)))
	}
}

func some(f protoreflect.FieldDescriptor, empty protoreflect.Value) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("auto")
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1 << 40)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	}
	return empty // a message that is one value
}

// unknownNumber is a field that no version of the contract has.
const unknownNumber = 2047

func spoil(m proto.Message) {
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, unknownNumber, protowire.VarintType), 1))
}

// spoilt clones m and hides an unknown field in the part that into picks.
func spoilt[M proto.Message](m M, into func(M) proto.Message) M {
	c := proto.Clone(m).(M)
	spoil(into(c))
	return c
}

// unknownRefused holds an error to the rule of unknown fields.
func unknownRefused(where string, err error) error {
	if wrong := refusal(err, []contract.Kind{contract.UnsupportedOption}, fmt.Sprint(unknownNumber)); wrong != nil {
		return fmt.Errorf("field %d of %s %w", unknownNumber, where, wrong)
	}
	return nil
}

func (s *subject) checkUnknownFields(ctx context.Context) error {
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	quick, cancel := context.WithTimeout(ctx, s.limits.quick)
	defer cancel()
	itself := func(m proto.Message) proto.Message { return m }
	empty := &cladev1.ModelSpec{Composition: &cladev1.Composition{Kv: &cladev1.KvScheme{}}}
	calls := []struct {
		rpc, where string
		call       func() error
	}{
		{"Plan", "PlanRequest.model.composition.kv", func() error {
			_, err := p.rpc.Plan(quick, spoilt(&cladev1.PlanRequest{Model: empty}, func(m *cladev1.PlanRequest) proto.Message { return m.Model.Composition.Kv }))
			return err
		}},
		{"Open", "OpenRequest.plan", func() error {
			stream, err := p.rpc.Open(quick, spoilt(&cladev1.OpenRequest{Model: empty, Plan: &cladev1.Plan{}}, func(m *cladev1.OpenRequest) proto.Message { return m.Plan }))
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}},
		{"Stats", "StatsRequest", func() error {
			m := &cladev1.StatsRequest{}
			spoil(itself(m))
			_, err := p.rpc.Stats(quick, m)
			return err
		}},
		{"Tune", "TuneRequest", func() error {
			m := &cladev1.TuneRequest{Threads: proto.Uint32(1)}
			spoil(m)
			_, err := p.rpc.Tune(quick, m)
			return err
		}},
		{"", "ShutdownRequest", func() error {
			m := &cladev1.ShutdownRequest{}
			spoil(m)
			_, err := p.rpc.Shutdown(quick, m)
			return err
		}},
	}
	return each(calls, func(c struct {
		rpc, where string
		call       func() error
	},
	) error {
		if c.rpc != "" && !s.rpcs[c.rpc] {
			return nil
		}
		if err := unknownRefused(c.where, contract.FromStatus(c.call())); err != nil {
			return err
		}
		return p.alive()
	})
}

// exchange sends messages over one Generate stream, closes it, and gives the error that it ends with; nil when it finishes.
func (s *subject) exchange(ctx context.Context, p *process, messages ...*cladev1.GenerateRequest) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := p.rpc.Generate(ctx)
	if err != nil {
		return contract.FromStatus(err)
	}
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			break // the reason comes with Recv
		}
	}
	_ = stream.CloseSend()
	for {
		_, err := recvFrom(s, "Generate", cancel, stream.Recv)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			err = contract.FromStatus(err)
			if dead := p.died(err); dead != nil {
				return dead
			}
			return err
		}
	}
}

func startOf(g *cladev1.GenerateStart) *cladev1.GenerateRequest {
	return &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Start{Start: g}}
}

func idsOf(ids ...int32) *cladev1.GenerateRequest {
	return &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Ids{Ids: &cladev1.IdsChunk{Ids: ids}}}
}

func promptEnd() *cladev1.GenerateRequest {
	return &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_PromptEnd{PromptEnd: &cladev1.PromptEnd{}}}
}

func control(c *cladev1.Control) *cladev1.GenerateRequest {
	return &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Control{Control: c}}
}
