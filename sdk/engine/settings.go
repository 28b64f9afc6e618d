package engine

import (
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
)

// maxThreads is what the kernels take at most (native/kernels, set_threads).
const maxThreads = 1024

// defaultChunk is used when a composition leaves the prefill chunk open.
const defaultChunk = 256

// maxRows is far above what a person's machine serves at once.
const maxRows = 256

// maxWindow is beyond any context.
const maxWindow = 1 << 30

// maxDepth is beyond any depth that pays.
const maxDepth = 64

// settings is a composition, checked against what this engine does.
type settings struct {
	device        mlx.Device
	dtype         mlx.DType
	chunk         int
	context       int // 0: the model's own
	maxGeneration int
	budget        int64  // 0: none
	prefixBytes   int64  // that the prefix cache may take
	diskBytes     int64  // that its files may take; 0: there are none
	diskDir       string // of the files
	kernelPolicy  string // one of kernelPolicies
	deterministic bool
	threads       int // of the kernels
	rows          int
	kv            family.KV
	paging        bool
	window, keep  int      // of layers that attend to all positions; 0: they do
	depth         int      // most tokens drafted for a row at once; 0: none are
	preset        []string // ids of the adapters of requests that name none
	adapterBytes  int64    // for adapters loaded later
	placement
}

// settle reads a composition; every value that cannot be honoured is refused by name.
func settle(c *cladev1.Composition, devices []mlx.Device) (settings, error) {
	out := settings{
		chunk: int(c.GetPrefillChunk()), context: int(c.GetContext()), maxGeneration: int(c.GetMaxGeneration()),
		preset: c.GetAdapters(), adapterBytes: int64(min(c.GetAdapterBytes(), 1<<50)),
		budget: int64(c.GetMemoryBudgetBytes()), prefixBytes: int64(min(c.GetPrefixCacheBytes(), math.MaxInt64)), kernelPolicy: c.GetKernels(), deterministic: c.GetDeterministic(),
		paging: c.GetPaging(), window: int(c.GetKvWindow()), keep: int(c.GetKvKeep()),
	}
	if c.PrefillChunk == nil {
		out.chunk = defaultChunk
	}
	if out.threads = int(c.GetThreads()); c.Threads == nil {
		out.threads = runtime.NumCPU()
	} else if out.threads < 1 || out.threads > maxThreads {
		return out, invalid("threads", "%d: want 1 to %d", out.threads, maxThreads)
	}
	var err error
	if out.placement, err = readPlacement(c, out.threads); err != nil {
		return out, err
	}
	if out.device, err = pickDevice(c.GetDevice(), devices); err != nil {
		return out, err
	}
	if out.dtype, err = pickDType(c.GetDtype(), out.device); err != nil {
		return out, err
	}
	if out.chunk < 1 {
		return out, invalid("prefill_chunk", "at least one token is needed")
	}
	if out.keep > kv.Step || out.keep > 0 && out.window == 0 || out.window > maxWindow {
		return out, invalid("kv_window", "%d tokens and the first %d: at most %d and %d", out.window, out.keep, maxWindow, kv.Step)
	}
	out.kv.Plain = family.NativeKV
	if c.GetKv().GetScheme() != nil {
		if out.kv, err = family.KVFromProto(c.GetKv()); err != nil {
			return out, err
		}
	}
	if err := out.settleDisk(c); err != nil {
		return out, err
	}
	if out.rows = int(c.GetRows()); c.Rows == nil {
		out.rows = 1
	} else if out.rows < 1 || out.rows > maxRows {
		return out, invalid("rows", "%d: want 1 to %d", out.rows, maxRows)
	}
	if out.kernelPolicy != "" && !slices.Contains(kernelPolicies, out.kernelPolicy) {
		return out, unhonoured("kernels", "%q is not one of %s", out.kernelPolicy, strings.Join(kernelPolicies, ", "))
	}
	out.depth = int(c.GetDraft().GetDepth())
	return out, nil
}

func (s *settings) settleDisk(c *cladev1.Composition) error {
	s.diskBytes, s.diskDir = int64(min(c.GetPrefixDiskBytes(), math.MaxInt64)), c.GetPrefixDiskDir()
	switch {
	case s.diskBytes == 0:
	case s.prefixBytes == 0:
		return invalid("prefix_disk_bytes", "what is on disk is used from memory, and prefix_cache_bytes is 0")
	case !filepath.IsAbs(s.diskDir):
		return invalid("prefix_disk_dir", "%q is no absolute path", s.diskDir)
	}
	return nil
}

// pickDevice takes the runtime's last device, a GPU where it has one, when none is named.
func pickDevice(name string, devices []mlx.Device) (mlx.Device, error) {
	var names []string
	for _, d := range devices {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	if name == "" && len(devices) > 0 {
		return devices[len(devices)-1], nil
	}
	return mlx.Device{}, unhonoured("device", "%q is not one of this runtime's: %s", name, strings.Join(names, ", "))
}

func pickDType(name string, d mlx.Device) (mlx.DType, error) {
	if name == "" {
		if d.Kind == mlx.CPU {
			return mlx.Float32, nil
		}
		return mlx.BFloat16, nil
	}
	dtype, ok := mlx.ParseDType(name)
	if !ok || !slices.Contains([]mlx.DType{mlx.Float32, mlx.BFloat16, mlx.Float16}, dtype) {
		return 0, invalid("dtype", "%q is not one of float32, bfloat16, float16", name)
	}
	return dtype, nil
}

func unhonoured(option, format string, args ...any) *contract.Error {
	return contract.Errorf(contract.UnsupportedOption, option, format, args...)
}
