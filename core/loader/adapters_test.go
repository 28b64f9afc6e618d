package loader

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

func (f *fakePlugin) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.adapted...)
}

// adapting is a resumable plugin whose requests choose adapters.
func adapting(t *testing.T, f *fakePlugin) *Model {
	t.Helper()
	f.options = append(f.options, adapterOption)
	return resumable(t, f)
}

func names(m *Model) (out []string) {
	for _, a := range m.Adapters() {
		out = append(out, a.ID)
	}
	return out
}

func TestAnUnknownAdapterIsRefusedNamingThoseThatThereAre(t *testing.T) {
	f := newFake()
	f.tokens = ids("ab")
	m := adapting(t, f)
	ask := func(choice string) error {
		_, err := m.Generate(t.Context(), prompt("x"), generate.Settings{Adapter: &choice}, drop)
		return err
	}
	refused(t, ask("law"), contract.NotFound, 5, "law: no adapter is loaded")
	require.NoError(t, ask("none"))
	require.NoError(t, m.LoadAdapter(t.Context(), AdapterWish{ID: "law", Path: "/law"}))
	require.NoError(t, m.LoadAdapter(t.Context(), AdapterWish{ID: "sql", Path: "/sql"}))
	require.Equal(t, []string{"law", "sql"}, names(m))
	refused(t, ask("law+med"), contract.NotFound, 5, "med: no adapter of this name is loaded; there are law, sql")
	require.NoError(t, ask("law+sql:0.5"))
	require.Equal(t, "law+sql:0.5", f.lastStart.GetAdapter())
	refused(t, m.UnloadAdapter(t.Context(), "med"), contract.NotFound, 5, "there are law, sql")
	refused(t, m.LoadAdapter(t.Context(), AdapterWish{ID: "none", Path: "/law"}), contract.InvalidArgument, 2, "is no id")
	require.Len(t, f.asked(), 2, "the plugin was not asked for what is refused")
}

// Adapters are loaded again in every process; one whose files changed meanwhile is left out.
func TestANewProcessHasTheAdaptersOfTheOneBefore(t *testing.T) {
	f := newFake()
	f.tokens = ids("abcdef")
	m := adapting(t, f)
	choice := "law"
	require.NoError(t, m.LoadAdapter(t.Context(), AdapterWish{ID: "law", Path: "/law"}))
	died := false
	f.crash = func(_ []int32, sent int) error {
		if sent == 3 && !died {
			died = true
			return errKilled
		}
		return nil
	}
	r, err := m.Generate(t.Context(), prompt("x"), generate.Settings{Adapter: &choice}, drop)
	require.NoError(t, err)
	require.Equal(t, "abcdef", r.Text)
	require.Equal(t, "law", f.lastStart.GetAdapter(), "what is left of it has the same adapter")
	require.Equal(t, []string{`1 {"load":{"id":"law","path":"/law"}}`, `2 {"load":{"id":"law","path":"/law"}}`}, normal(f.asked()))

	f.mu.Lock()
	f.digest = "other files"
	f.mu.Unlock()
	died = false
	_, err = m.Generate(t.Context(), prompt("x"), generate.Settings{}, drop)
	require.NoError(t, err, "requests without it go on")
	require.Empty(t, names(m))
	_, err = m.Generate(t.Context(), prompt("x"), generate.Settings{Adapter: &choice}, drop)
	refused(t, err, contract.NotFound, 5, "law: no adapter is loaded")
}

// A process that is killed while it loads an adapter has loaded nothing; the next one does.
func TestAnAdapterWhosePluginIsKilledMeanwhileIsToBeAskedForAgain(t *testing.T) {
	f := newFake()
	m := adapting(t, f)
	f.killed = true
	law := AdapterWish{ID: "law", Path: "/law"}
	refused(t, m.LoadAdapter(t.Context(), law), contract.Unavailable, 1, "law: nothing is loaded: ", "try again")
	require.Empty(t, names(m))
	require.NoError(t, m.LoadAdapter(t.Context(), law))
	require.Equal(t, []string{"law"}, names(m))
}

// normal takes the random blanks out of protojson.
func normal(texts []string) (out []string) {
	for _, text := range texts {
		out = append(out, strings.ReplaceAll(strings.ReplaceAll(text, `, "`, `,"`), `: "`, `:"`))
	}
	return out
}

// A request that has an adapter goes on with it, through a death of the plugin too, while it is being unloaded: the plugin is told when
// the last such request has ended.
func TestUnloadingWaitsForRequestsThroughADeath(t *testing.T) {
	f := newFake()
	f.tokens, f.hold = ids("abcdefgh"), make(chan struct{})
	m := adapting(t, f)
	choice := "law"
	require.NoError(t, m.LoadAdapter(t.Context(), AdapterWish{ID: "law", Path: "/law"}))
	died := false
	f.crash = func(_ []int32, sent int) error {
		if sent == 4 && !died {
			died = true
			return errKilled
		}
		return nil
	}
	begun, answered := make(chan struct{}), make(chan generate.Result, 1)
	go func() {
		first := true
		r, err := m.Generate(t.Context(), prompt("x"), generate.Settings{Adapter: &choice}, func(generate.Delta) error {
			if first {
				close(begun)
			}
			first = false
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	f.hold <- struct{}{}
	<-begun
	leaver, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- m.UnloadAdapter(leaver, "law") }()
	require.Eventually(t, func() bool { return len(names(m)) == 0 }, 5*time.Second, time.Millisecond)
	_, err := m.Generate(t.Context(), prompt("x"), generate.Settings{Adapter: &choice}, drop)
	refused(t, err, contract.NotFound, 5, "law: no adapter is loaded")
	refused(t, m.UnloadAdapter(t.Context(), "law"), contract.NotFound, 5, "no adapter is loaded")
	refused(t, m.LoadAdapter(t.Context(), AdapterWish{ID: "law", Path: "/b"}), contract.InvalidArgument, 2, "is being unloaded, and requests still have it")
	leave()
	require.Equal(t, contract.Cancelled, contract.KindOf(<-left), "who asked may leave")
	close(f.hold)
	require.Equal(t, "abcdefgh", (<-answered).Text)
	require.True(t, died)
	require.Equal(t, []string{`1 {"load":{"id":"law","path":"/law"}}`, `2 {"load":{"id":"law","path":"/law"}}`, `2 {"unload":{"id":"law"}}`}, normal(f.asked()))
	require.NoError(t, m.LoadAdapter(t.Context(), AdapterWish{ID: "law", Path: "/b"}), "its name is free")
}

func TestAnAdapterThatTheModelWasOpenedWithStays(t *testing.T) {
	f := newFake()
	f.options = append(f.options, "adapters", adapterOption)
	plan := f.plan
	f.plan = speculator().plan
	d, err := hostOf(t, f).DecideWith(tinyModel(t), Choices{Adapters: []string{"law=" + adapterFolder(t)}})
	require.NoError(t, err)
	p, err := d.Plan(t.Context(), Wishes{})
	require.NoError(t, err)
	m, err := p.Open(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close(context.Background())) }()
	f.plan = plan
	require.Equal(t, []string{"law"}, names(m))
	require.True(t, m.Adapters()[0].Given)
	refused(t, m.UnloadAdapter(t.Context(), "law"), contract.InvalidArgument, 2, "the model was opened with it")
	choice := "law:0.5"
	_, err = m.Generate(t.Context(), prompt("x"), generate.Settings{Adapter: &choice}, drop)
	require.NoError(t, err)
}

func TestAPluginWithoutAdaptersIsAskedForNone(t *testing.T) {
	m := openFake(t, newFake())
	refused(t, m.LoadAdapter(t.Context(), AdapterWish{ID: "law", Path: "/law"}), contract.UnsupportedOption, 2, "does not honour it")
	refused(t, m.UnloadAdapter(t.Context(), "law"), contract.UnsupportedOption, 2, "does not honour it")
	require.Empty(t, m.Adapters())
	choice := "law"
	_, err := m.Generate(t.Context(), prompt("x"), generate.Settings{Adapter: &choice}, drop)
	refused(t, err, contract.UnsupportedOption, 2, "lora: the model's plugin does not honour it")
}
