package plugin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func TestUndeclaredOptionsAreRefusedByPath(t *testing.T) {
	_, c := opened(t, &fake{generate: finish}, "sampling.temperature", "sampling.repetition", "constraint.regex", "kv.plain", "stop_token_ids")
	for _, tc := range []struct {
		start   *cladev1.GenerateStart
		refused string
	}{
		{&cladev1.GenerateStart{RequestId: "structure"}, ""},
		{&cladev1.GenerateStart{Sampling: &cladev1.Sampling{}}, ""},
		{&cladev1.GenerateStart{Sampling: &cladev1.Sampling{Temperature: ptr(0.0)}}, ""},
		{&cladev1.GenerateStart{Sampling: &cladev1.Sampling{Repetition: &cladev1.Penalty{Value: 1}}}, ""},
		{&cladev1.GenerateStart{StopTokenIds: []int32{1}}, ""},
		{&cladev1.GenerateStart{Constraint: &cladev1.Constraint{Grammar: &cladev1.Constraint_Regex{Regex: "a"}}}, ""},
		{&cladev1.GenerateStart{Sampling: &cladev1.Sampling{TopK: ptr(uint32(0))}}, "sampling.top_k"},
		{&cladev1.GenerateStart{Sampling: &cladev1.Sampling{TopP: ptr(1.0), MinP: ptr(0.1)}}, "sampling.min_p, sampling.top_p"},
		{&cladev1.GenerateStart{Sampling: &cladev1.Sampling{Presence: &cladev1.Penalty{}}}, "sampling.presence"},
		{&cladev1.GenerateStart{Sampling: &cladev1.Sampling{LogitBias: map[int32]float64{1: 2}}}, "sampling.logit_bias"},
		{&cladev1.GenerateStart{Constraint: &cladev1.Constraint{Grammar: &cladev1.Constraint_JsonSchema{JsonSchema: "{}"}}}, "constraint.json_schema"},
		{&cladev1.GenerateStart{Logprobs: &cladev1.Logprobs{}}, "logprobs"},
		{&cladev1.GenerateStart{RestorePoints: []uint32{1}}, "restore_points"},
		{&cladev1.GenerateStart{PrefixCache: ptr(false)}, "prefix_cache"},
	} {
		_, err := request(t.Context(), t, c, startMsg(tc.start), endMsg())
		if tc.refused == "" {
			require.NoError(t, err, "%v", tc.start)
			continue
		}
		kindIs(t, err, contract.UnsupportedOption, tc.refused+":", "echo")
	}
	_, err := c.Plan(t.Context(), &cladev1.PlanRequest{Model: spec(func(m *cladev1.ModelSpec) {
		m.Composition.Kv = &cladev1.KvScheme{Scheme: &cladev1.KvScheme_Affine{Affine: &cladev1.KvAffine{Bits: 4}}}
		m.Composition.Threads = ptr(uint32(2))
	})})
	kindIs(t, err, contract.UnsupportedOption, "kv.affine, threads:")
}

func TestUnknownFieldsAreRefusedInEveryMessage(t *testing.T) {
	_, c := opened(t, &fake{generate: func(ctx context.Context, job *GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Second):
			return emit(done())
		}
	}})
	ctx := t.Context()
	_, err := c.Describe(ctx, withUnknown(&cladev1.DescribeRequest{}))
	kindIs(t, err, contract.UnsupportedOption, "77")
	_, err = c.Inspect(ctx, withUnknown(&cladev1.InspectRequest{}))
	kindIs(t, err, contract.UnsupportedOption, "77")
	m := spec()
	withUnknown(m.Composition)
	_, err = c.Plan(ctx, &cladev1.PlanRequest{Model: m})
	kindIs(t, err, contract.UnsupportedOption, "model.composition.77")
	_, err = openModel(ctx, c, m, &cladev1.Plan{})
	kindIs(t, err, contract.UnsupportedOption, "model.composition.77")
	_, err = c.Stats(ctx, withUnknown(&cladev1.StatsRequest{}))
	kindIs(t, err, contract.UnsupportedOption, "77")
	_, err = c.Tune(ctx, withUnknown(&cladev1.TuneRequest{}))
	kindIs(t, err, contract.UnsupportedOption, "77")
	_, err = c.Shutdown(ctx, withUnknown(&cladev1.ShutdownRequest{}))
	kindIs(t, err, contract.UnsupportedOption, "77")

	start := startMsg(&cladev1.GenerateStart{})
	_, err = request(ctx, t, c, startMsg(withUnknown(&cladev1.GenerateStart{})))
	kindIs(t, err, contract.UnsupportedOption, "start.77")
	_, err = request(ctx, t, c, start, withUnknown(idsMsg(1)))
	kindIs(t, err, contract.UnsupportedOption, "77")
	_, err = request(ctx, t, c, start, endMsg(), controlMsg(withUnknown(&cladev1.Control{Action: &cladev1.Control_StopAt{}})))
	kindIs(t, err, contract.UnsupportedOption, "control.77")

	stream, err := c.Score(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&cladev1.ScoreRequest{Message: &cladev1.ScoreRequest_Start{Start: withUnknown(&cladev1.ScoreStart{})}}))
	_, err = drainStream(stream.Recv)
	kindIs(t, err, contract.UnsupportedOption, "start.77")
}

func TestAPromptIsAssembledInOrderAndBounded(t *testing.T) {
	var got *GenerateJob
	_, c := opened(t, &fake{generate: func(_ context.Context, job *GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
		got = job
		return emit(done())
	}}, "media")
	start := startMsg(&cladev1.GenerateStart{RequestId: "r"})
	_, err := request(t.Context(), t, c, start, idsMsg(1, 2), mediaMsg(&cladev1.MediaChunk{Type: "image/rgb8", Width: 2, Position: 1, Data: []byte{1}}),
		mediaMsg(&cladev1.MediaChunk{Data: []byte{2}, Last: true}), idsMsg(3), endMsg())
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 3}, got.IDs)
	require.Equal(t, []Media{{Type: "image/rgb8", Width: 2, Position: 1, Data: []byte{1, 2}}}, got.Media)

	for name, tc := range map[string]struct {
		messages []*cladev1.GenerateRequest
		kind     contract.Kind
	}{
		"ids before start":      {[]*cladev1.GenerateRequest{idsMsg(1)}, contract.InvalidArgument},
		"two starts":            {[]*cladev1.GenerateRequest{start, start}, contract.InvalidArgument},
		"an empty message":      {[]*cladev1.GenerateRequest{{}}, contract.InvalidArgument},
		"control in prompt":     {[]*cladev1.GenerateRequest{start, controlMsg(&cladev1.Control{Action: &cladev1.Control_StopAt{}})}, contract.InvalidArgument},
		"cancel in prompt":      {[]*cladev1.GenerateRequest{start, controlMsg(&cladev1.Control{Action: &cladev1.Control_Cancel{Cancel: true}})}, contract.Cancelled},
		"more than the context": {[]*cladev1.GenerateRequest{start, idsMsg(1, 2, 3, 4, 5), idsMsg(6, 7, 8, 9)}, contract.ContextTooLong},
		"media out of order":    {[]*cladev1.GenerateRequest{start, mediaMsg(&cladev1.MediaChunk{Item: 1})}, contract.InvalidArgument},
		"media cut short":       {[]*cladev1.GenerateRequest{start, mediaMsg(&cladev1.MediaChunk{}), endMsg()}, contract.InvalidArgument},
		"media interleaved":     {[]*cladev1.GenerateRequest{start, mediaMsg(&cladev1.MediaChunk{}), mediaMsg(&cladev1.MediaChunk{Item: 1})}, contract.InvalidArgument},
	} {
		_, err := request(t.Context(), t, c, tc.messages...)
		require.Error(t, err, name)
		kindIs(t, err, tc.kind)
	}
	_, c = opened(t, &fake{generate: finish})
	_, err = request(t.Context(), t, c, start, mediaMsg(&cladev1.MediaChunk{Last: true}), endMsg())
	kindIs(t, err, contract.UnsupportedOption, "media:")
}

func TestAStreamThatTheHostEndsBeforeThePromptIsRefused(t *testing.T) {
	_, c := opened(t, &fake{generate: finish})
	stream, err := c.Generate(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(startMsg(&cladev1.GenerateStart{})))
	require.NoError(t, stream.CloseSend())
	_, err = drainStream(stream.Recv)
	kindIs(t, err, contract.InvalidArgument, "prompt_end")
}

func TestAModelThatEndsWithoutFinishIsADefect(t *testing.T) {
	_, c := opened(t, &fake{generate: func(context.Context, *GenerateJob, func(*cladev1.GenerateResponse) error) error { return nil }})
	_, err := request(t.Context(), t, c, startMsg(&cladev1.GenerateStart{}), endMsg())
	kindIs(t, err, contract.Internal, "without its last event")
}

func TestControlAfterThePromptEndsOrSteersTheJob(t *testing.T) {
	var cause error
	_, c := opened(t, &fake{generate: func(ctx context.Context, job *GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
		select {
		case <-ctx.Done():
			cause = context.Cause(ctx)
			return ctx.Err()
		case m := <-job.Control:
			return errors.Join(emit(step(int32(m.GetStopAt()))), emit(done()))
		}
	}})
	start := startMsg(&cladev1.GenerateStart{})
	all, err := request(t.Context(), t, c, start, endMsg(), controlMsg(&cladev1.Control{Action: &cladev1.Control_StopAt{StopAt: 6}}))
	require.NoError(t, err)
	require.Equal(t, []int32{6}, all[0].GetStep().Ids)
	_, err = request(t.Context(), t, c, start, endMsg(), controlMsg(&cladev1.Control{Action: &cladev1.Control_Cancel{Cancel: true}}))
	kindIs(t, err, contract.Cancelled)
	kindIs(t, cause, contract.Cancelled, "cancelled by the host")
	_, err = request(t.Context(), t, c, start, endMsg(), idsMsg(1))
	kindIs(t, err, contract.InvalidArgument, "after prompt_end")
}

func TestAHeartbeatComesEachSecondWithTheModelsCounts(t *testing.T) {
	_, c := opened(t, &fake{generate: func(_ context.Context, _ *GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
		time.Sleep(2*heartbeat + heartbeat/2)
		return emit(done())
	}})
	all, err := request(t.Context(), t, c, startMsg(&cladev1.GenerateStart{}), endMsg())
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, all[0].GetProgress().GetEvaluations()+1, all[1].GetProgress().GetEvaluations())
}

func TestTokensThatAreReadyLeaveInOneMessageWhenTheHostIsSlow(t *testing.T) {
	gate := make(chan struct{})
	var sent []*cladev1.GenerateResponse
	out := newOutbox(t.Context(), func(m *cladev1.GenerateResponse) error {
		if len(sent) == 0 {
			<-gate
		}
		sent = append(sent, m)
		return nil
	}, mergeGenerate)
	const n = 5000
	for i := range int32(n) {
		require.NoError(t, out.push(step(i)))
	}
	lp := step(n)
	lp.GetStep().Logprobs = []*cladev1.TokenLogprobs{{Id: n}}
	require.NoError(t, out.push(lp))
	require.NoError(t, out.push(done()))
	close(gate)
	require.NoError(t, out.close())
	require.LessOrEqual(t, len(sent), 5)
	var ids []int32
	for i, m := range sent {
		require.Less(t, proto.Size(m), contract.MessageBudget)
		if l := m.GetStep().GetLogprobs(); l != nil {
			require.Len(t, l, len(m.GetStep().GetIds()), "logprobs and ids come apart")
		}
		require.Equal(t, i == len(sent)-1, m.GetFinish() != nil)
		ids = append(ids, m.GetStep().GetIds()...)
	}
	require.Len(t, ids, n+1)
	for i, id := range ids {
		require.EqualValues(t, i, id)
	}
}

func TestAModelIsHeldUpByAHostThatDoesNotReadAndFreedByItsEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := newOutbox(ctx, func(*cladev1.ScoreResponse) error { <-ctx.Done(); return ctx.Err() },
		func(_, _ *cladev1.ScoreResponse) bool { return false })
	pushed := make(chan error)
	go func() {
		frame := &cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Frame{Frame: &cladev1.ScoreFrame{Values: make([]float32, frameValues)}}}
		for {
			err := out.push(frame)
			pushed <- err
			if err != nil {
				return
			}
		}
	}()
	count := 0
	for blocked := false; !blocked; {
		select {
		case err := <-pushed:
			require.NoError(t, err)
			count++
		case <-time.After(200 * time.Millisecond):
			blocked = true
		}
	}
	require.LessOrEqual(t, count, 4, "the queue has no bound")
	cancel()
	kindIs(t, <-pushed, contract.Cancelled)
	require.Error(t, out.close())
	require.Error(t, out.push(&cladev1.ScoreResponse{}))
}

func TestAMessageOverTheBudgetIsADefect(t *testing.T) {
	out := newOutbox(t.Context(), func(*cladev1.ScoreResponse) error { return nil }, func(_, _ *cladev1.ScoreResponse) bool { return false })
	err := out.push(&cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Frame{Frame: &cladev1.ScoreFrame{Values: make([]float32, 1<<20)}}})
	kindIs(t, err, contract.Internal, "ScoreResponse")
	require.NoError(t, out.close())
}

func TestConcurrentRequestsDoNotMix(t *testing.T) {
	_, c := opened(t, &fake{generate: func(_ context.Context, job *GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
		for range 50 {
			if err := emit(step(job.IDs[0])); err != nil {
				return err
			}
		}
		return emit(done())
	}})
	errs := make(chan error)
	for i := range int32(8) {
		go func() {
			all, err := request(t.Context(), t, c, startMsg(&cladev1.GenerateStart{}), idsMsg(i), endMsg())
			n := 0
			for _, m := range all {
				for _, id := range m.GetStep().GetIds() {
					n++
					if id != i {
						err = fmt.Errorf("%d got %d", i, id)
					}
				}
			}
			if err == nil && n != 50 {
				err = fmt.Errorf("%d tokens", n)
			}
			errs <- err
		}()
	}
	for range 8 {
		require.NoError(t, <-errs)
	}
}
