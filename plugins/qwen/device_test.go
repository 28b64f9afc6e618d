//go:build device

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// On a GPU a plan has the kernel that is a source for matrices of trellis codes, or says why not; what ran stands in the provenance.
func TestAPlanHasTheTrellisKernelOfItsDevice(t *testing.T) {
	f, err := engine.Plugin(manifest, qwen())
	require.NoError(t, err)
	_, devices, err := f.Backend.LoadRuntime(enginetest.RuntimeDir())
	require.NoError(t, err)
	i := slices.IndexFunc(devices, func(d *cladev1.Device) bool { return !strings.HasPrefix(d.Id, "cpu") })
	require.GreaterOrEqual(t, i, 0, "the runtime has no GPU")
	for _, k := range f.Kernels() {
		t.Logf("describe: %s %v %s", k.Name, k.SelfTest, k.Reason)
	}
	coded, _ := tiny.Qwen3Trellis()
	path, err := coded.Write(t.TempDir())
	require.NoError(t, err)
	a, err := artifact.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	m, err := family.ParseManifest(manifest)
	require.NoError(t, err)
	record := m.Families[slices.IndexFunc(m.Families, func(r *family.Record) bool { return r.Match(a.Config()).OK })]
	parsed, err := record.Parse(a)
	require.NoError(t, err)
	weights := map[string]uint64{}
	answers := map[string][]int32{}
	for _, policy := range []string{"auto", "off"} {
		dtype := "float32"
		model := &cladev1.ModelSpec{
			Artifacts: []*cladev1.Artifact{{Role: cladev1.Role_ROLE_TARGET, Path: path, Format: string(a.Format)}},
			Graph:     record.Graph, GraphEntry: "qwen3", Profile: &cladev1.Profile{Id: record.Profile}, ParsedConfigJson: parsed.JSON(),
			Composition: &cladev1.Composition{Device: &devices[i].Id, Dtype: &dtype, Kernels: &policy},
		}
		plan, err := f.Backend.Plan(context.Background(), &cladev1.PlanRequest{Model: model})
		require.NoError(t, err)
		kernel := slices.IndexFunc(plan.Kernels, func(k *cladev1.KernelChoice) bool { return strings.HasPrefix(k.Name, "trellis-") })
		require.GreaterOrEqual(t, kernel, 0)
		require.Equal(t, policy == "auto", plan.Kernels[kernel].Native, plan.Kernels[kernel].Reason)
		weights[policy] = plan.Lines[0].Bytes
		t.Logf("%s: %s; %v", policy, plan.Lines[0], plan.Notes)
		m, err := f.Backend.Open(context.Background(), &cladev1.OpenRequest{Model: model, Plan: plan}, func(*cladev1.OpenResponse) {})
		require.NoError(t, err)
		most, ignore := uint32(24), true
		var finish *cladev1.Finish
		require.NoError(t, m.Generate(context.Background(), &plugin.GenerateJob{
			Start: &cladev1.GenerateStart{MaxTokens: &most, Sampling: &cladev1.Sampling{IgnoreEos: &ignore}}, IDs: tiny.Prompt(9, 256),
		}, func(r *cladev1.GenerateResponse) error {
			answers[policy] = append(answers[policy], r.GetStep().GetIds()...)
			finish = r.GetFinish()
			return nil
		}))
		require.Equal(t, policy == "auto", slices.Contains(finish.Provenance.Kernels, plan.Kernels[kernel].Name), fmt.Sprint(finish.Provenance))
		require.Equal(t, policy == "off", slices.ContainsFunc(finish.Provenance.Notes, func(n string) bool { return strings.Contains(n, "kernels=off") }))
		require.NoError(t, m.Close())
	}
	require.Less(t, weights["auto"], weights["off"]/2)
	require.Equal(t, answers["off"], answers["auto"])
}
