package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// adapters writes the adapters of the tiny llama into a folder, each under its name.
func adapters(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, a := range tiny.LlamaAdapters() {
		path, err := a.Write(t.TempDir())
		require.NoError(t, err)
		require.NoError(t, os.Rename(path, filepath.Join(dir, a.Name)))
	}
	return dir
}

// asked posts a body and gives the status and the answer.
func asked(t *testing.T, s *server, path string, body any) (int, string) {
	t.Helper()
	data, err := json.Marshal(body)
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, bytes.NewReader(data))
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(answer)
}

func metricsOf(t *testing.T, s *server) string {
	t.Helper()
	res, err := http.Get(s.url + "/metrics") //nolint:noctx // a test
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text)
}

type object = map[string]any

// choices of the streams: by the model's name, or beside it.
var adapterChoices = []object{
	{"model": "base"},
	{"model": "mlx-all"},
	{"model": "peft-all"},
	{"lora": "mlx-all+peft-all:0.5"},
	{"lora": []object{{"id": "peft-all", "scale": 0.5}}},
	{"lora": "none"},
}

func adapted(i int, tokens int64) openai.ChatCompletionNewParams {
	p := ask(tokens)
	p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("to be or not to be ", 12))}
	p.Model, p.Seed, p.Temperature = "base", openai.Int(int64(9+i/len(adapterChoices))), openai.Float(float64(i/len(adapterChoices)%2))
	extra := object{"ignore_eos": true}
	for k, v := range adapterChoices[i%len(adapterChoices)] {
		if k == "model" {
			p.Model = v.(string)
		} else {
			extra[k] = v
		}
	}
	p.SetExtraFields(extra)
	return p
}

// adaptedRound runs every choice with two seeds at once and gives the texts. Their bytes are counted as they come.
func adaptedRound(t *testing.T, s *server, tokens int64, came *atomic.Int64) []string {
	t.Helper()
	c := chatClient(t, s)
	texts, errs := make([]string, 2*len(adapterChoices)), make([]error, 2*len(adapterChoices))
	var wg sync.WaitGroup
	for i := range texts {
		wg.Go(func() {
			stream := c.Chat.Completions.NewStreaming(t.Context(), adapted(i, tokens))
			for stream.Next() {
				if ch := stream.Current().Choices; len(ch) > 0 {
					texts[i] += ch[0].Delta.Content
					came.Add(int64(len(ch[0].Delta.Content)))
				}
			}
			errs[i] = stream.Err()
		})
	}
	wg.Wait()
	for i, err := range errs {
		require.NoError(t, err, "stream %d; %s", i, s.log)
		require.NotEmpty(t, texts[i])
	}
	return texts
}

// Streams with adapters of their own, one opened with the model and one loaded over HTTP, go on when the plugin is killed in the middle,
// with the same tokens: plain, with drafts, with a quantized cache and with the disk tier. What one adapter computed is no other's.
func TestStreamsWithAdaptersGoOnWhenTheirPluginIsKilled(t *testing.T) {
	const tokens = 250
	dir := adapters(t)
	for name, more := range map[string][]string{
		"plain":  {"--prefix-cache", "0"},
		"drafts": {"--draft", "ngram", "--draft-depth", "4"},
		"cache":  {"--kv", "turbo:k8v4", "--prefix-disk", "64MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, append([]string{
				talkerNamed(t, "base"), "--rows", "8", "--context", "1024", "--adapter", filepath.Join(dir, "mlx-all"), "--default-adapters", "none",
				"--adapter-memory", "1MiB", "--adapter-dir", dir,
			}, more...)...)
			code, answer := asked(t, s, "/v1/load_lora_adapter", object{"lora_name": "peft-all", "lora_path": "peft-all"})
			require.Equal(t, 200, code, answer)
			var came atomic.Int64
			cold := adaptedRound(t, s, tokens, &came)
			n := len(adapterChoices)
			require.Equal(t, cold[0], cold[5], "the model alone, said or not")
			for i := range n {
				for j := range i {
					require.True(t, i == 5 && j == 0 || cold[i] != cold[j], "choices %d and %d answer alike", i, j)
				}
			}
			whole := came.Load()
			for _, at := range []int64{1, whole / 3} {
				came.Store(0)
				killed := make(chan error, 1)
				go func() {
					for came.Load() < at {
						time.Sleep(time.Millisecond)
					}
					late := came.Load() > whole*9/10
					err := syscall.Kill(children(t, s.cmd.Process.Pid)[0], syscall.SIGKILL)
					if late {
						err = errors.New("the plugin was killed too late")
					}
					killed <- err
				}()
				require.Equal(t, cold, adaptedRound(t, s, tokens, &came))
				require.NoError(t, <-killed)
			}
			if name == "drafts" {
				require.NotContains(t, metricsOf(t, s), `vllm:spec_decode_num_drafts_total{model_name="base"} 0`)
				require.Contains(t, metricsOf(t, s), `vllm:spec_decode_num_drafts_total{model_name="base"} `)
			}
		})
	}
}

// Adapters come and go while others answer; a damaged one changes nothing, and one that is in use is freed behind its last request.
func TestAdaptersComeAndGoDuringTraffic(t *testing.T) {
	dir := adapters(t)
	bad := filepath.Join(dir, "bad")
	require.NoError(t, os.CopyFS(bad, os.DirFS(filepath.Join(dir, "peft-all"))))
	weights := filepath.Join(bad, "adapter_model.safetensors")
	data, err := os.ReadFile(weights)
	require.NoError(t, err)
	nan := []byte{0, 0, 0xc0, 0x7f}
	copy(data[len(data)-8:], nan)
	require.NoError(t, os.WriteFile(weights, data, 0o600))

	home := t.TempDir()
	s := startServerIn(t, home, talkerNamed(t, "base"), "--rows", "4", "--context", "8192", "--adapter-memory", "1MiB", "--adapter-dir", dir)
	load := func(name, folder string) (int, string) {
		return asked(t, s, "/v1/load_lora_adapter", object{"lora_name": name, "lora_path": folder})
	}
	unload := func(name string) (int, string) {
		return asked(t, s, "/v1/unload_lora_adapter", object{"lora_name": name})
	}
	c := chatClient(t, s)
	say := func(model string) (string, error) {
		p := ask(40)
		p.Model = model
		r, err := c.Chat.Completions.New(t.Context(), p)
		if err != nil {
			return "", err
		}
		return r.Choices[0].Message.Content, nil
	}
	want, err := say("base")
	require.NoError(t, err)
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	endTraffic := sync.OnceFunc(func() { close(stop); traffic.Wait() })
	defer endTraffic()
	var answers atomic.Int64
	for range 2 {
		traffic.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := say("base"); err != nil || got != want {
					t.Errorf("beside loading: %q, %v", got, err)
					return
				}
				answers.Add(1)
			}
		})
	}
	var first string
	for i := range 5 {
		code, answer := load("one", []string{"peft-all", "mlx-all"}[i%2])
		require.Equal(t, 200, code, answer)
		got, err := say("one")
		require.NoError(t, err)
		require.NotEqual(t, want, got)
		if first == "" {
			first = got
		}
		require.Equal(t, i%2 == 0, got == first, "the adapter of that name is another one")
		code, answer = load("two", "bad")
		require.Equal(t, 422, code, answer)
		require.Contains(t, answer, "is not finite")
		require.Contains(t, answer, "lora_")
		code, answer = load("one", "mlx-attention")
		require.Equal(t, 400, code, answer)
		require.Contains(t, answer, "has an adapter of this name already")
		code, answer = asked(t, s, "/v1/chat/completions", object{"model": "two", "messages": []object{{"role": "user", "content": "x"}}})
		require.Equal(t, 404, code)
		require.Contains(t, answer, "no such model is served; there are base; adapters: one")
		code, answer = unload("one")
		require.Equal(t, 200, code, answer)
		_, err = say("one")
		require.ErrorContains(t, err, "404")
	}
	endTraffic()
	require.Greater(t, answers.Load(), int64(2))

	code, answer := load("one", "peft-all")
	require.Equal(t, 200, code, answer)
	p := ask(1500)
	p.Model = "one"
	whole, err := c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Contains(t, whole.RawJSON(), `"adapters":["one:1"]`)
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	require.True(t, stream.Next())
	unloaded := make(chan string, 1)
	go func() {
		code, answer := unload("one")
		unloaded <- fmt.Sprint(code, " ", answer)
	}()
	require.Eventually(t, func() bool { _, err := say("one"); return err != nil }, 10*time.Second, time.Millisecond)
	require.Empty(t, unloaded, "it waits for the request that has the adapter")
	require.NoError(t, syscall.Kill(children(t, s.cmd.Process.Pid)[0], syscall.SIGKILL))
	acc := openai.ChatCompletionAccumulator{}
	for ok := true; ok; ok = stream.Next() {
		acc.AddChunk(stream.Current())
	}
	require.NoError(t, stream.Err(), s.log.String())
	require.Equal(t, whole.Choices[0].Message.Content, acc.Choices[0].Message.Content, "it went on with its adapter, in another process")
	require.Equal(t, "200 Success: LoRA adapter 'one' removed successfully.", <-unloaded)
}

// The command line sees and changes what a server has, and asks with it.
func TestTheCommandLineLoadsListsAndAsksWithAdapters(t *testing.T) {
	home, dir, model := t.TempDir(), adapters(t), talkerNamed(t, "base")
	require.Equal(t, 5, cladeIn(t, home, "adapter", "load", filepath.Join(dir, "mlx-all")).code)
	s := startServerIn(t, home, model, "--adapter-memory", "1MiB")
	code, answer := asked(t, s, "/v1/load_lora_adapter", object{"lora_name": "x", "lora_path": dir})
	require.Equal(t, 403, code, answer)
	r := cladeIn(t, home, "adapter", "load", "law="+filepath.Join(dir, "mlx-all")+":0.5")
	require.Equal(t, 0, r.code, r.errors)
	require.Contains(t, cladeIn(t, home, "ps").out, "law")
	var list []struct {
		Adapters []struct {
			ID, Path string
			Scale    float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(cladeIn(t, home, "ps", "--json").out), &list))
	require.Len(t, list[0].Adapters, 1)
	require.InDelta(t, 0.5, list[0].Adapters[0].Scale, 0)
	generate := func(more ...string) result {
		return cladeIn(t, home, append([]string{"generate", model, "--prompt", "Hello", "--max-tokens", "12", "--ignore-eos", "--json", "--adapter-memory", "1MiB"}, more...)...)
	}
	plain, law := generate(), generate("--lora", "law")
	require.Equal(t, 0, law.code, law.errors)
	require.Contains(t, strings.Join(strings.Fields(law.out), ""), `"adapters":["law:0.5"]`)
	require.NotContains(t, plain.out, `"adapters"`)
	own := generate("--adapter", filepath.Join(dir, "mlx-all")+":0.5")
	ids := func(r result) (g generated) {
		require.Equal(t, 0, r.code, r.errors)
		require.NoError(t, json.Unmarshal([]byte(r.out), &g))
		return g
	}
	require.Equal(t, ids(own), ids(law))
	require.NotEqual(t, ids(plain), ids(law))
	require.Equal(t, 0, cladeIn(t, home, "adapter", "unload", "law").code)
	r = cladeIn(t, home, "adapter", "unload", "law")
	require.Equal(t, 5, r.code)
	require.Contains(t, r.errors, "law: no adapter of this name is loaded")
	require.Equal(t, 5, generate("--lora", "law").code)
	r = cladeIn(t, home, "serve", model, "--adapter-dir", dir)
	require.Equal(t, 2, r.code)
	require.Contains(t, r.errors, "give --adapter-memory too")
}

// embedderAdapter writes an adapter of the first layer's queries for a model.
func embedderAdapter(t *testing.T, model string) string {
	t.Helper()
	const rank = 2
	a, err := artifact.Open(model)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	at := slices.IndexFunc(a.Tensors(), func(w artifact.Tensor) bool { return strings.HasSuffix(w.Name, "layers.0.self_attn.q_proj.weight") })
	require.GreaterOrEqual(t, at, 0)
	w := a.Tensors()[at]
	dir, module := t.TempDir(), "model.layers.0.self_attn.q_proj"
	write(t, filepath.Join(dir, "adapter_config.json"), object{"fine_tune_type": "lora", "lora_parameters": object{"rank": rank, "scale": 4.0}})
	var halves []artifact.NewTensor
	for name, shape := range map[string][]int64{".lora_a": {w.Shape[1], rank}, ".lora_b": {rank, w.Shape[0]}} {
		half := artifact.NewTensor{Name: module + name, DType: artifact.F32, Shape: shape}
		for i := range shape[0] * shape[1] {
			half.Data = binary.LittleEndian.AppendUint32(half.Data, math.Float32bits(float32(i%7)/16-0.1))
		}
		halves = append(halves, half)
	}
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, "adapters.safetensors"), halves, nil))
	return dir
}

// Embeddings have adapters too: by the model's name, in lora, and on the command line.
func TestEmbeddingsHaveTheAdaptersThatTheyChoose(t *testing.T) {
	model := embedder(t)
	folder := embedderAdapter(t, model)
	vector := func(more ...string) []float32 {
		var got embedding
		jsonOf(t, &got, append([]string{"embed", model, "--text", "hello", "--json"}, more...)...)
		return got.Embedding
	}
	plain, with := vector(), vector("--adapter", "law="+folder)
	require.NotEqual(t, plain, with)
	require.Equal(t, plain, vector("--adapter", "law="+folder, "--lora", "none"))
	require.Equal(t, with, vector("--adapter", "law="+folder, "--lora", "law:1"))
	r := clade(t, "embed", model, "--text", "hello", "--adapter", "law="+folder, "--lora", "med")
	require.Equal(t, 5, r.code)
	require.Contains(t, r.errors, "med: no adapter of this name is loaded; there are law")

	s := startServer(t, model, "--adapter", "law="+folder, "--default-adapters", "none")
	for body, want := range map[string][]float32{
		`{"input":"hello"}`: plain, `{"input":"hello","model":"law"}`: with, `{"input":"hello","lora":[{"id":"law"}]}`: with, `{"input":"hello","lora":[]}`: plain,
	} {
		code, answer := asked(t, s, "/v1/embeddings", json.RawMessage(body))
		require.Equal(t, 200, code, answer)
		var got struct {
			Data []struct{ Embedding []float32 }
		}
		require.NoError(t, json.Unmarshal([]byte(answer), &got))
		require.Equal(t, want, got.Data[0].Embedding, body)
	}
}
