package compose

import (
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// defaultKeep is the first tokens that stay beside a window unless the wish names another number: as in mlx-lm's rotating cache, and
// enough to hold what attention rests on (StreamingLLM, arXiv 2309.17453).
const defaultKeep = 4

// window is all tokens unless the user wants attention bounded: TOKENS, or TOKENS+KEEP.
func (c *Composition) window() error {
	w := c.in.Wishes.KVWindow
	if !asked(w) || w == "0" {
		return c.putWindow(0, 0, FromDefault)
	}
	text, kept, named := strings.Cut(w, "+")
	tokens, err := strconv.ParseUint(text, 10, 31)
	keep := uint64(defaultKeep)
	if err == nil && named {
		keep, err = strconv.ParseUint(kept, 10, 31)
	}
	if err != nil || tokens == 0 {
		return contract.Errorf(contract.InvalidArgument, "kv_window", "%q is neither TOKENS nor TOKENS+KEEP, such as 4096 or 4096+4", w)
	}
	return c.putWindow(uint32(tokens), uint32(keep), FromUser)
}

func (c *Composition) putWindow(tokens, keep uint32, source Source) error {
	text := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	if err := c.put("kv_window", "kv_window", text(tokens), source, func() { c.Proto.KvWindow = &tokens }); err != nil {
		return err
	}
	return c.put("kv_keep", "kv_keep", text(keep), source, func() { c.Proto.KvKeep = &keep })
}
