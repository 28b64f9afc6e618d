package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"
)

// talkerNamed is a talker whose id is name.
func talkerNamed(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Rename(talker(t), path))
	return path
}

// cladeIn runs a command line of the user with that home.
func cladeIn(t *testing.T, home string, args ...string) result {
	t.Helper()
	cmd := command(t, t.Context(), args...)
	cmd.Env = append(cmd.Env, "HOME="+home)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // its exit code is looked at
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

type psEntry struct {
	Model         string `json:"model"`
	State         string `json:"state"`
	PlannedBytes  uint64 `json:"planned_bytes"`
	ResidentBytes uint64 `json:"resident_bytes"`
	Server        int    `json:"server_pid"`
}

func ps(t *testing.T, home string) map[string]psEntry {
	t.Helper()
	r := cladeIn(t, home, "ps", "--json")
	require.Equal(t, 0, r.code, r.errors)
	var list []psEntry
	require.NoError(t, json.Unmarshal([]byte(r.out), &list))
	out := map[string]psEntry{}
	for _, e := range list {
		out[e.Model] = e
	}
	return out
}

func TestTwoServersAreListedUsedAndStopped(t *testing.T) {
	home := t.TempDir()
	require.Empty(t, ps(t, home))
	require.Equal(t, 5, cladeIn(t, home, "stop", "one").code)
	one, two := talkerNamed(t, "one"), talkerNamed(t, "two")
	first, second := startServerIn(t, home, one), startServerIn(t, home, two)

	list := ps(t, home)
	require.Len(t, list, 2)
	require.Equal(t, first.cmd.Process.Pid, list["one"].Server)
	require.Equal(t, second.cmd.Process.Pid, list["two"].Server)
	require.Equal(t, "ready", list["two"].State)
	require.Greater(t, list["two"].ResidentBytes, uint64(10<<20))
	require.Less(t, list["two"].ResidentBytes, list["two"].PlannedBytes+planSlack)

	ask := []string{"run", two, "Hello", "--max-tokens", "8", "--ignore-eos", "--log-level", "info"}
	borrowed, own := cladeIn(t, home, ask...), cladeIn(t, home, append(ask, "--context", "512")...)
	require.Equal(t, 0, borrowed.code, borrowed.errors)
	require.Contains(t, borrowed.errors, "using the model that a server has open")
	require.NotContains(t, own.errors, "using the model", "another context is another composition")
	require.Equal(t, own.out, borrowed.out)
	r := cladeIn(t, home, "generate", two, "--prompt", "Hello", "--max-tokens", "8", "--json")
	require.Equal(t, 0, r.code, r.errors)
	require.Contains(t, r.out, `"token_ids"`)

	require.Equal(t, 0, cladeIn(t, home, "stop", "two").code)
	require.Equal(t, "absent", ps(t, home)["two"].State)
	require.Empty(t, children(t, second.cmd.Process.Pid))
	r = cladeIn(t, home, ask...)
	require.Equal(t, 0, r.code, r.errors)
	require.NotContains(t, r.errors, "using the model", "an unloaded model is not opened for a borrower")
	require.Equal(t, 5, cladeIn(t, home, "stop", "three").code)

	require.NoError(t, first.cmd.Process.Kill())
	<-first.done
	require.NotContains(t, ps(t, home), "one", "the state file of a killed server is stale")
	require.NoFileExists(t, filepath.Join(home, ".local", "state", "clade", "serve", strconv.Itoa(first.cmd.Process.Pid)+".json"))
	require.Equal(t, 0, cladeIn(t, home, "stop", "--all").code)
}

func TestAServerSwapsModelsThatDoNotFitBesideEachOther(t *testing.T) {
	home := t.TempDir()
	s := startServerIn(t, home, talkerNamed(t, "one"), talkerNamed(t, "two"), "--context", "2048", "--rows", "1", "--memory-budget", "80MiB", "--log-level", "info")
	require.Equal(t, "ready", ps(t, home)["one"].State)
	require.Equal(t, "absent", ps(t, home)["two"].State, "not closed for each other at the start")
	c := chatClient(t, s)
	for _, model := range []string{"two", "one", "two"} {
		p := ask(4)
		p.Model = openai.ChatModel(model)
		r, err := c.Chat.Completions.New(t.Context(), p)
		require.NoError(t, err)
		require.EqualValues(t, 4, r.Usage.CompletionTokens)
		require.Equal(t, "ready", ps(t, home)[model].State)
		require.Len(t, children(t, s.cmd.Process.Pid), 1)
	}
	require.Contains(t, s.log.String(), "evicted for another model")
}

func TestAnIdleModelIsUnloadedAndComesBack(t *testing.T) {
	home := t.TempDir()
	s := startServerIn(t, home, talkerNamed(t, "one"), "--keep-alive", "300ms")
	require.Eventually(t, func() bool { return len(children(t, s.cmd.Process.Pid)) == 0 }, 10*time.Second, 20*time.Millisecond)
	require.Equal(t, 200, status(t, s.url+"/health"))
	p := ask(4)
	p.Model = "one"
	c := chatClient(t, s)
	_, err := c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
}

// threadsOf is what a served model says it computed an answer with.
func threadsOf(t *testing.T, home, path string) int {
	t.Helper()
	r := cladeIn(t, home, "generate", path, "--prompt", "Hello", "--max-tokens", "4", "--ignore-eos", "--json", "--threads", "4", "--log-level", "info")
	require.Equal(t, 0, r.code, r.errors)
	require.Contains(t, r.errors, "using the model that a server has open")
	var got struct {
		TokenIDs   []int32 `json:"token_ids"`
		Provenance struct{ Threads int }
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &got))
	require.Len(t, got.TokenIDs, 4)
	return got.Provenance.Threads
}

func TestCoresAreDividedOverOpenModelsAndAgainWhenOneOpensOrCloses(t *testing.T) {
	t.Setenv("GOMAXPROCS", "4") // the host's idea of the machine
	home := t.TempDir()
	one, two := talkerNamed(t, "one"), talkerNamed(t, "two")
	s := startServerIn(t, home, one, two, "--threads", "4")
	require.Equal(t, 2, threadsOf(t, home, one))
	require.Equal(t, 2, threadsOf(t, home, two))
	require.Equal(t, 0, cladeIn(t, home, "stop", "two").code)
	require.Equal(t, 4, threadsOf(t, home, one), "it has the machine alone")
	p := ask(4)
	p.Model = "two"
	c := chatClient(t, s)
	_, err := c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, 2, threadsOf(t, home, one), "divided again when the other came back")
}

func TestStopOfABusyModelLetsItsRequestEnd(t *testing.T) {
	home := t.TempDir()
	s := startServerIn(t, home, talkerNamed(t, "one"))
	p := ask(3000)
	p.Model = "one"
	c := chatClient(t, s)
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	require.True(t, stream.Next())
	stopped := make(chan result, 1)
	go func() { stopped <- cladeIn(t, home, "stop", "one") }()
	require.Eventually(t, func() bool { return ps(t, home)["one"].State == "draining" }, 10*time.Second, 10*time.Millisecond)
	select {
	case r := <-stopped:
		t.Fatalf("stop did not wait: %+v", r)
	default:
	}
	finish := ""
	for stream.Next() {
		if choices := stream.Current().Choices; len(choices) > 0 && choices[0].FinishReason != "" {
			finish = choices[0].FinishReason
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, "length", finish, "all 3000 tokens came")
	require.Equal(t, 0, (<-stopped).code)
	require.Empty(t, children(t, s.cmd.Process.Pid))
	require.Equal(t, "absent", ps(t, home)["one"].State)
}
