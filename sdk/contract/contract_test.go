package contract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

// The table of DESIGN section 4: scripts and clients depend on every cell.
func TestKindsHaveTheirExitCodesAndStatuses(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		name string
		exit int
		http int
	}{
		{InvalidArgument, "invalid-argument", 2, 400},
		{UnsupportedOption, "unsupported-option", 2, 400},
		{UnsupportedModel, "unsupported-model", 3, 400},
		{UnsupportedModelLoad, "unsupported-model-load", 3, 400},
		{MemoryAdmission, "memory-admission", 4, 400},
		{OutOfMemory, "out-of-memory", 4, 507},
		{ContextTooLong, "context-too-long", 4, 400},
		{ArtifactCorrupt, "artifact-corrupt", 5, 422},
		{NotFound, "not-found", 5, 404},
		{PluginMissing, "plugin-missing", 6, 503},
		{PluginUntrusted, "plugin-untrusted", 6, 503},
		{PluginMismatch, "plugin-mismatch", 1, 500},
		{PluginCrashed, "plugin-crashed", 1, 500},
		{Internal, "internal", 1, 500},
		{Busy, "busy", 1, 429},
		{Cancelled, "cancelled", 130, 499},
		{Unavailable, "unavailable", 1, 503},
	} {
		require.Equal(t, c.name, c.kind.String())
		require.Equal(t, c.exit, c.kind.ExitCode(), c.name)
		require.Equal(t, c.http, c.kind.HTTPStatus(), c.name)
	}
}

func TestEveryKindOfTheProtoHasARow(t *testing.T) {
	for n, name := range cladev1.Kind_name {
		_, ok := kinds[Kind(n)]
		require.Equal(t, n != 0, ok, name)
	}
	require.Equal(t, "internal", Kind(0).String())
	require.Equal(t, http.StatusInternalServerError, Kind(9999).HTTPStatus(), "a Kind of a later version")
}

// Field numbers and Kinds are only appended: these are on the wire already.
func TestKindNumbersNeverChange(t *testing.T) {
	for n, k := range map[int32]Kind{
		1: InvalidArgument, 2: UnsupportedOption, 3: UnsupportedModel, 4: UnsupportedModelLoad, 5: MemoryAdmission, 6: OutOfMemory,
		7: ContextTooLong, 8: ArtifactCorrupt, 9: NotFound, 10: PluginMissing, 11: PluginUntrusted, 12: PluginMismatch,
		13: PluginCrashed, 14: Internal, 15: Busy, 16: Cancelled, 17: Unavailable,
	} {
		require.Equal(t, n, int32(k))
	}
}

func TestAnErrorCrossesTheWireWhole(t *testing.T) {
	for k := range kinds {
		in := Errorf(k, "model.gguf: t", "is %d bytes", 3).WithNext("get it again")
		out := FromStatus(ToStatus(fmt.Errorf("open: %w", in)))
		var e *Error
		require.ErrorAs(t, out, &e)
		require.Equal(t, k, e.Kind, k)
		require.Equal(t, k, KindOf(out))
		require.Equal(t, []string{in.Subject, in.Message, in.Next}, []string{e.Subject, e.Message, e.Next})
		require.Equal(t, in.Error(), out.Error())
		require.NotEqual(t, codes.Unavailable, status.Code(ToStatus(in)), "that code is the connection's own")
		require.NotEqual(t, codes.OK, status.Code(ToStatus(in)))
	}
}

func TestErrorsThatAreNotOursKeepTheirMeaning(t *testing.T) {
	require.NoError(t, ToStatus(nil))
	require.NoError(t, FromStatus(nil))
	require.Equal(t, io.EOF, FromStatus(io.EOF))
	require.Equal(t, Internal, KindOf(FromStatus(ToStatus(errors.New("plain")))))
	require.Equal(t, Cancelled, KindOf(FromStatus(ToStatus(fmt.Errorf("x: %w", context.Canceled)))))
	st := status.Error(codes.Unavailable, "gone")
	require.Equal(t, st, ToStatus(st))
	for code, kind := range map[codes.Code]Kind{
		codes.Unavailable: PluginCrashed, codes.DeadlineExceeded: PluginCrashed, codes.Canceled: Cancelled,
		codes.Unimplemented: UnsupportedOption, codes.Unknown: Internal, codes.Internal: Internal,
	} {
		require.Equal(t, kind, KindOf(FromStatus(status.Error(code, "m"))), code)
	}
}

func TestAnErrorIsOneLineWithItsNextStep(t *testing.T) {
	cause := errors.New("short\n\tread")
	e := Errorf(ArtifactCorrupt, "a.safetensors", "header: %w", cause)
	require.Equal(t, "a.safetensors: header: short read", e.Error())
	require.ErrorIs(t, e, cause)
	next := e.WithNext("download %s again", "it")
	require.Equal(t, "a.safetensors: header: short read; download it again", next.Error())
	require.Empty(t, e.Next, "WithNext changed its receiver")
}

func unknown(num protowire.Number) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), 1)
}

func TestUnknownFieldsAreFoundWhereverTheyAre(t *testing.T) {
	require.Empty(t, UnknownFields(&cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Start{Start: &cladev1.GenerateStart{
		Sampling: &cladev1.Sampling{LogitBias: map[int32]float64{1: 2}}, StopTokenIds: []int32{1},
	}}}))
	with := func(m proto.Message, nums ...protowire.Number) {
		var raw []byte
		for _, n := range nums {
			raw = append(raw, unknown(n)...)
		}
		m.ProtoReflect().SetUnknown(raw)
	}
	sampling := &cladev1.Sampling{Repetition: &cladev1.Penalty{}}
	with(sampling, 77)
	with(sampling.Repetition, 5)
	layer := &cladev1.KvLayer{}
	with(layer, 9)
	for _, c := range []struct {
		message proto.Message
		want    []string
	}{
		{
			&cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Start{Start: &cladev1.GenerateStart{Sampling: sampling}}},
			[]string{"start.sampling.77", "start.sampling.repetition.5"},
		},
		{&cladev1.Composition{Kv: &cladev1.KvScheme{Scheme: &cladev1.KvScheme_Layers{Layers: &cladev1.KvLayers{
			Layers: []*cladev1.KvLayer{{}, layer},
		}}}}, []string{"kv.layers.layers[1].9"}},
	} {
		require.Equal(t, c.want, UnknownFields(c.message))
		data, err := proto.Marshal(c.message)
		require.NoError(t, err)
		again := c.message.ProtoReflect().New().Interface()
		require.NoError(t, proto.Unmarshal(data, again))
		require.Equal(t, c.want, UnknownFields(again), "after the wire")
	}
	many := &cladev1.TuneRequest{}
	with(many, 8, 9)
	require.Equal(t, []string{"8", "9"}, UnknownFields(many))
}

// Options are told from structure by presence: a scalar of these messages without it could be ignored without a trace.
func TestEveryOptionHasPresence(t *testing.T) {
	structure := map[protoreflect.FullName]bool{
		"clade.v1.GenerateStart.request_id": true, "clade.v1.ScoreStart.output": true,
	}
	for _, m := range []proto.Message{
		&cladev1.GenerateStart{}, &cladev1.Sampling{}, &cladev1.Constraint{}, &cladev1.Speculation{}, &cladev1.Diffusion{},
		&cladev1.ScoreStart{}, &cladev1.EmbedStart{}, &cladev1.TranscribeStart{}, &cladev1.Composition{}, &cladev1.KvScheme{},
	} {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			if !structure[f.FullName()] && !f.IsList() && !f.IsMap() {
				require.True(t, f.HasPresence(), f.FullName())
			}
		}
	}
}

func TestTheHandshakeIsStable(t *testing.T) {
	h := Handshake()
	require.EqualValues(t, 1, h.ProtocolVersion)
	require.Equal(t, "CLADE_PLUGIN", h.MagicCookieKey)
	require.Greater(t, MaxMessage, MessageBudget)
}

func FuzzUnknownFields(f *testing.F) {
	good, _ := proto.Marshal(&cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Ids{Ids: &cladev1.IdsChunk{Ids: []int32{1, -1}}}})
	f.Add(good)
	f.Add(append(unknown(77), good...))
	f.Add([]byte{0x0a, 0x02, 0x98, 0x06})
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &cladev1.GenerateRequest{}
		if proto.Unmarshal(data, m) != nil {
			return
		}
		found := UnknownFields(m)
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		require.NoError(t, err)
		n := &cladev1.GenerateRequest{}
		require.NoError(t, proto.Unmarshal(again, n))
		require.ElementsMatch(t, found, UnknownFields(n))
	})
}
