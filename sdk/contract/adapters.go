package contract

import (
	"math"
	"strconv"
	"strings"
)

// NoAdapter is the choice of the model alone.
const NoAdapter = "none"

// Limits of a choice of adapters.
const (
	MaxAdapters = 8 // of one request
	maxID       = 128
)

// AdapterUse is one adapter of a choice. Scale is nil where the adapter's own holds.
type AdapterUse struct {
	ID    string
	Scale *float64
}

// ParseAdapters reads a choice of adapters: ids joined by "+", each perhaps with a scale behind ":"; NoAdapter is the empty one.
func ParseAdapters(text string) ([]AdapterUse, error) {
	if text == NoAdapter {
		return nil, nil
	}
	var out []AdapterUse
	for part := range strings.SplitSeq(text, "+") {
		id, scale, scaled := strings.Cut(part, ":")
		if err := CheckAdapterID(id); err != nil {
			return nil, err
		}
		use := AdapterUse{ID: id}
		if scaled {
			v, err := strconv.ParseFloat(scale, 64)
			if err == nil {
				err = CheckAdapterScale(id, v)
			}
			if err != nil {
				return nil, Errorf(InvalidArgument, "adapter", "%q is no scale of %s", scale, id)
			}
			use.Scale = &v
		}
		for _, other := range out {
			if other.ID == id {
				return nil, Errorf(InvalidArgument, "adapter", "%s is named twice", id)
			}
		}
		if len(out) == MaxAdapters {
			return nil, Errorf(InvalidArgument, "adapter", "more than %d at once", MaxAdapters)
		}
		out = append(out, use)
	}
	return out, nil
}

// CheckAdapterID refuses what cannot be an adapter's id: a name, or a name behind its owner's as on a hub.
func CheckAdapterID(id string) error {
	owner, name, owned := strings.Cut(id, "/")
	ok := len(id) <= maxID && id != NoAdapter && isName(owner) && (!owned || isName(name))
	if !ok {
		return Errorf(InvalidArgument, "adapter", "%.40q is no id: want NAME or OWNER/NAME, each beginning with a letter or a digit, then "+
			"these and . _ -, at most %d bytes, not %q", id, maxID, NoAdapter)
	}
	return nil
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && (i == 0 || strings.IndexByte("._-", c) < 0) {
			return false
		}
	}
	return s != ""
}

// maxScale is far beyond what leaves a model sensible.
const maxScale = 1e4

// CheckAdapterScale refuses what nothing can be multiplied by.
func CheckAdapterScale(id string, v float64) error {
	if math.IsNaN(v) || math.Abs(v) > maxScale {
		return Errorf(InvalidArgument, "adapter", "%g is no scale of %s", v, id)
	}
	return nil
}
