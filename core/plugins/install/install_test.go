//go:build linux || darwin

package install

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/publish"
	"github.com/clademl/clade/core/plugins/trust"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
)

const (
	// envKill is the step at which this program, run as a child, kills itself; envWork the bench's folder.
	envKill = "CLADE_TEST_KILL_AT"
	envWork = "CLADE_TEST_WORK"
)

func TestMain(m *testing.M) {
	if step := os.Getenv(envKill); step != "" {
		installAndDie(step, os.Getenv(envWork))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func TestAnInstalledPluginIsFoundWithItsRuntime(t *testing.T) {
	b := published(t)
	require.NoError(t, b.try())
	b.works()
	in, err := b.set().Find("echo")
	require.NoError(t, err)
	require.Equal(t, "example.org", in.Source)
	require.Equal(t, index.KeyID(b.key.ID()), in.Signer)
	require.Equal(t, "cpu", in.Runtime.Variant)
	p, err := b.Propose(t.Context(), "example.org/echo", "")
	require.NoError(t, err)
	require.True(t, p.Current())
}

func TestPluginsShareARuntimeAndTheLastOneTakesItAway(t *testing.T) {
	b := published(t)
	b.publish(b.plugin(edited(manifestText, "name: echo", "name: again", "org/echo", "org/again", "[echo]", "[again]", "value: echo", "value: again")))
	require.NoError(t, b.try())
	p, err := b.Propose(t.Context(), "example.org/again", "")
	require.NoError(t, err)
	require.Equal(t, p.Choice.Archive.Size, p.Missing, "the runtime is downloaded again")
	_, err = b.Install(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, b.left("sha256-*"), 3)
	_, err = b.Remove(t.Context(), "example.org/again")
	require.NoError(t, err)
	b.works()
	_, err = b.Remove(t.Context(), "example.org/echo")
	require.NoError(t, err)
	require.Empty(t, b.left("sha256-*"))
	_, err = b.Remove(t.Context(), "example.org/echo")
	require.Equal(t, contract.NotFound, contract.KindOf(err))
}

func TestAnUpdateReplacesWhatNobodyRunsAndKeepsWhatSomebodyDoes(t *testing.T) {
	b := published(t)
	require.NoError(t, b.try())
	in, err := b.set().Find("echo")
	require.NoError(t, err)
	release, err := b.Store.Hold(in.Archive)
	require.NoError(t, err)

	b.publish(b.plugin(edited(manifestText, "0.1.0", "0.2.0", "label: echo", "label: Echo")))
	changes, err := b.Updates(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.NoError(t, changes[0].Err)
	require.Equal(t, []string{"example.org/echo"}, changes[0].Changed)
	require.False(t, changes[0].RuntimeChanges)
	_, err = b.Install(t.Context(), changes[0].Proposal)
	require.NoError(t, err)
	require.DirExists(t, in.Dir, "a running plugin was removed")
	now, err := b.set().Find("echo")
	require.NoError(t, err)
	require.Equal(t, "0.2.0", now.Manifest.Version)

	release()
	l, err := b.Store.Lock(t.Context(), nil)
	require.NoError(t, err)
	removed, err := l.Collect()
	l.Unlock()
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	b.works()
}

func TestTwoInstallationsAtOnceBothEndWell(t *testing.T) {
	b := published(t)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			m := managerIn(b.work) // as another process would
			m.Offers = b.Offers
			p, err := m.Propose(t.Context(), "example.org/echo", "")
			if err == nil {
				_, err = m.Install(t.Context(), p)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	b.works()
}

func TestWaitingForAnotherInstallationEndsWithItsContext(t *testing.T) {
	b := published(t)
	l, err := b.Store.Lock(t.Context(), nil)
	require.NoError(t, err)
	defer l.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	m, told := managerIn(b.work), false
	m.Waiting = func() { told = true }
	_, err = m.Propose(ctx, "example.org/echo", "")
	require.Equal(t, contract.Cancelled, contract.KindOf(err))
	require.True(t, told)
}

func TestTheLockFileHoldsAnInstallationToItsDigests(t *testing.T) {
	b := published(t)
	_, err := b.LockedNames()
	require.ErrorContains(t, err, "locks no plugin")
	require.NoError(t, b.try())
	names, err := b.LockedNames()
	require.NoError(t, err)
	require.Equal(t, []string{"example.org/echo"}, names)

	// Another machine, with the same lock file, some versions later.
	b.publish(b.plugin(edited(manifestText, "0.1.0", "0.2.0")))
	_, err = b.Remove(t.Context(), "example.org/echo")
	require.NoError(t, err)
	require.NoError(t, b.trySoon("0.1.0"))
	p, err := b.ProposeLocked(t.Context(), "example.org/echo")
	require.NoError(t, err)
	require.Equal(t, "0.1.0", p.Choice.Version.Version)

	// The same version with another content is not what was locked.
	b.resign(func(x *index.Index) { x.Plugins["echo"].Versions[1].Platforms[0].SHA256 = digestOf(nil) })
	_, err = b.ProposeLocked(t.Context(), "example.org/echo")
	require.Equal(t, contract.PluginUntrusted, contract.KindOf(err))
	require.ErrorContains(t, err, "is not the one that")
	_, err = b.ProposeLocked(t.Context(), "example.org/other")
	require.Equal(t, contract.NotFound, contract.KindOf(err))
}

// trySoon installs an exact version.
func (b *bench) trySoon(version string) error {
	p, err := b.Propose(b.t.Context(), "example.org/echo", version)
	if err != nil {
		return err
	}
	_, err = b.Install(b.t.Context(), p)
	return err
}

// Locks that know one platform alone fail on every other machine (terraform#27135 and others).
func TestTheLockFileHasEveryPlatform(t *testing.T) {
	b := published(t)
	folder := b.plugin(manifestText)
	_, err := publish.Add(publish.Options{
		Dir: b.dir, Key: b.key, Lifetime: time.Hour, OS: "plan9", Arch: "mips", Now: time.Now(),
	}, []string{folder})
	require.NoError(t, err)
	require.NoError(t, b.try())
	f, err := b.readLock()
	require.NoError(t, err)
	require.Len(t, f.Plugins["echo"].Platforms, 2)
	require.Contains(t, f.Plugins["echo"].Platforms, "plan9/mips")
	require.Len(t, f.Plugins["echo"].Runtimes, 1)
}

func TestABundleInstallsWithoutItsSource(t *testing.T) {
	b := published(t)
	path := filepath.Join(b.work, "b.tar")
	require.NoError(t, b.Bundle(t.Context(), []string{"example.org/echo"}, []index.Machine{b.Machine}, path))
	require.NoError(t, os.RemoveAll(b.dir))

	far := newBench(t)
	_, err := far.ProposeBundle(t.Context(), path)
	require.Equal(t, contract.PluginUntrusted, contract.KindOf(err), "another key signed it: %v", err)
	require.NoError(t, far.Trust.Add(trust.Source{Name: "example.org", Keys: []string{b.public()}}))
	proposals, err := far.ProposeBundle(t.Context(), path)
	require.NoError(t, err)
	require.Len(t, proposals, 1)
	_, err = far.Install(t.Context(), proposals[0])
	require.NoError(t, err)
	far.works()
}

func TestABundleForAnotherMachineSaysSo(t *testing.T) {
	b := published(t)
	b.resign(func(x *index.Index) {
		a := x.Plugins["echo"].Versions[0].Platforms[0]
		a.OS, a.SHA256 = "plan9", digestOf([]byte("x"))
		x.Plugins["echo"].Versions[0].Platforms = append(x.Plugins["echo"].Versions[0].Platforms, a)
	})
	path := filepath.Join(b.work, "b.tar")
	err := b.Bundle(t.Context(), []string{"example.org/echo"}, []index.Machine{{OS: "plan9", Arch: b.Machine.Arch, Variants: []string{"cpu"}}}, path)
	require.ErrorContains(t, err, "the source has none for plan9")
	require.NoFileExists(t, path)
}

func TestKeysRotateThroughTheIndex(t *testing.T) {
	b := published(t)
	require.NoError(t, b.try())
	next := newBench(t).key
	first := b.key
	b.resign(func(x *index.Index) { x.Keys = []string{(&bench{key: next}).public()} })
	require.NoError(t, b.try(), "the old key hands over")
	x, _, err := b.Trust.Cached(mustFind(t, b), time.Now(), false)
	require.NoError(t, err, "the index that handed over is still the last accepted one")
	require.Equal(t, index.KeyID(first.ID()), x.Signer)
	b.key = next
	b.resign(func(*index.Index) {})
	require.NoError(t, b.try(), "the new key signs")
	b.key = first
	b.resign(func(*index.Index) {})
	require.ErrorContains(t, b.try(), "is not trusted")
	b.works()
}

func mustFind(t *testing.T, b *bench) trust.Source {
	t.Helper()
	s, err := b.Trust.Find("example.org")
	require.NoError(t, err)
	return s
}

func TestAReleaseRefusesAThrowawayKey(t *testing.T) {
	b := published(t)
	b.resign(func(x *index.Index) { x.Throwaway = true })
	b.Release = true
	require.ErrorContains(t, b.try(), "is signed with a throwaway key, which a release of clade refuses")
	b.untouched()
	b.Release = false
	require.NoError(t, b.try())
}

func TestNamesBelongToTheirSource(t *testing.T) {
	b := published(t)
	_, err := b.Propose(t.Context(), "echo", "")
	require.ErrorContains(t, err, "no source of plugins is trusted that could have it; add one with")
	_, _, err = b.Refresh(t.Context(), mustFind(t, b))
	require.NoError(t, err)
	_, err = b.Propose(t.Context(), "echo", "")
	require.ErrorContains(t, err, "clade plugin install example.org/echo")
	_, err = b.Propose(t.Context(), "example.com/echo", "")
	require.Equal(t, contract.PluginUntrusted, contract.KindOf(err))
	require.Equal(t, "example.org", b.SourceOf("echo"))
	require.Equal(t, index.FirstParty, b.SourceOf("universal"))
	offers, err := b.IndexOffers()
	require.NoError(t, err)
	require.Len(t, offers, 1)
	require.Equal(t, corefamily.FromIndex, offers[0].Source)
}

func TestAPreReleaseIsTakenWhenItIsWanted(t *testing.T) {
	b := published(t)
	b.publish(b.plugin(edited(manifestText, "0.1.0", "0.2.0-rc.1")))
	p, err := b.Propose(t.Context(), "example.org/echo", "")
	require.NoError(t, err)
	require.Equal(t, "0.1.0", p.Choice.Version.Version)
	p, err = b.Propose(t.Context(), "example.org/echo", "0.2.0-rc.1")
	require.NoError(t, err)
	require.Equal(t, "0.2.0-rc.1", p.Choice.Version.Version)
	_, err = b.Propose(t.Context(), "example.org/echo", "9.9.9")
	require.ErrorContains(t, err, "it has 0.2.0-rc.1, 0.1.0")
}

// A host that is too old for the newest version gets the newest that it can run.
func TestTheNewestVersionForThisHostIsChosen(t *testing.T) {
	b := published(t)
	b.publish(b.plugin(edited(manifestText, "0.1.0", "0.3.0")))
	later, err := family.ParseManifest([]byte(edited(manifestText, "0.1.0", "0.3.0", "contract: [1]", "contract: [2]")))
	require.NoError(t, err)
	b.resign(func(x *index.Index) { x.Plugins["echo"].Versions[0].Manifest = []byte(later.JSON()) })
	p, err := b.Propose(t.Context(), "example.org/echo", "")
	require.NoError(t, err)
	require.Equal(t, "0.1.0", p.Choice.Version.Version)
}
