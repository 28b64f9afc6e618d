package plugin

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

// arrival is a message and when it was sent.
type arrival struct {
	at  time.Duration
	ids []int32
}

// emitPaced runs streams that each push a token every interval, and returns what each sent, the last message included.
func emitPaced(t *testing.T, streams, tokens int, interval time.Duration) [][]arrival {
	t.Helper()
	p, out := newPace(), make([][]arrival, streams)
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() {
			defer p.join()()
			o := newPacedOutbox(context.Background(), func(m *cladev1.GenerateResponse) error {
				out[i] = append(out[i], arrival{time.Since(p.start), m.GetStep().GetIds()})
				return nil
			}, mergeGenerate, p, isStep)
			for n := range tokens {
				time.Sleep(interval)
				step := &cladev1.TokenStep{Ids: []int32{int32(n)}}
				require.NoError(t, o.push(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Step{Step: step}}))
			}
			require.NoError(t, o.push(done()))
			require.NoError(t, o.close())
		})
	}
	wg.Wait()
	return out
}

func TestTokensOfManyStreamsLeaveTogetherAtMost20MillisecondsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval, tokens = 7 * time.Millisecond, 50
		for _, messages := range emitPaced(t, 5, tokens, interval) {
			got := 0
			for i, m := range messages[:len(messages)-1] {
				for _, id := range m.ids {
					require.EqualValues(t, got, id)
					made := time.Duration(got+1) * interval
					require.LessOrEqual(t, m.at-made, pacePeriod)
					got++
				}
				if last := i == len(messages)-2; i > 0 && !last {
					require.Zero(t, m.at%pacePeriod, "all streams send at the same moments")
				}
			}
			require.Equal(t, tokens, got)
			require.Equal(t, tokens*interval, messages[len(messages)-1].at, "the end does not wait")
			require.Less(t, len(messages), tokens*int(interval)/int(pacePeriod)+4)
		}
	})
}

func TestTokensOfFewStreamsLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, messages := range emitPaced(t, pacedStreams, 10, 7*time.Millisecond) {
			require.Len(t, messages, 11)
			for i, m := range messages[:10] {
				require.Equal(t, time.Duration(i+1)*7*time.Millisecond, m.at)
			}
		}
	})
}
