package contract

import (
	"slices"
	"strings"
)

// allowed is the part of the host's environment that a plugin sees; a name that ends in * is a prefix. Tokens, proxies
// and preloads stay with the host. LD_LIBRARY_PATH is here because GPU containers find libcuda by it; our own libraries are
// opened by absolute path.
var allowed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_*", "TZ", "TMPDIR", "XDG_CACHE_HOME",
	"LD_LIBRARY_PATH", "CUDA_*", "NVIDIA_*", "MLX_*", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
	"GOTRACEBACK", "GOMEMLIMIT",
}

// Environment filters a host's environment (KEY=value) by what a plugin may see of it.
func Environment(host []string) []string {
	var out []string
	for _, kv := range host {
		key, _, _ := strings.Cut(kv, "=")
		if slices.ContainsFunc(allowed, func(a string) bool {
			prefix, wild := strings.CutSuffix(a, "*")
			return key == a || (wild && strings.HasPrefix(key, prefix))
		}) {
			out = append(out, kv)
		}
	}
	return out
}
