package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units of ParseBytes, longest suffix first so that "KiB" is not read as "B".
var units = []struct {
	suffix string
	bytes  float64
}{
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"tib", 1 << 40},
	{"kb", 1e3},
	{"mb", 1e6},
	{"gb", 1e9},
	{"tb", 1e12},
	{"k", 1 << 10},
	{"m", 1 << 20},
	{"g", 1 << 30},
	{"t", 1 << 40},
	{"b", 1},
	{"", 1},
}

// ParseBytes reads "4GiB", "1.5g", "800MB" or a plain number of bytes.
func ParseBytes(s string) (uint64, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	for _, u := range units {
		number, ok := strings.CutSuffix(t, u.suffix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64); err == nil && u.bytes == 1 {
			return n, nil
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || math.IsNaN(f) || f < 0 || f*u.bytes >= math.MaxInt64 {
			break
		}
		return uint64(f * u.bytes), nil
	}
	return 0, fmt.Errorf("%q is not a size; want bytes such as 4GiB or 800MB", s)
}

// FormatBytes prints a size for people, in binary units.
func FormatBytes(n uint64) string {
	const names = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(names)-1 {
		f /= 1024
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, names[i])
}
