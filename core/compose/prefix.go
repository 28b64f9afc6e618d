package compose

import (
	"fmt"
	"strconv"

	"github.com/clademl/clade/sdk/contract"
)

// prefixCache is what a model may keep of earlier requests' beginnings; a plugin takes less where the budget leaves less.
const prefixCache = 512 << 20

// prefixes is what may be kept of the beginnings of requests, in memory and in files.
func (c *Composition) prefixes() error {
	kept, source := uint64(prefixCache), FromDefault
	if w := c.in.Wishes.PrefixCache; w != "" {
		var err error
		if kept, err = strconv.ParseUint(w, 10, 63); err != nil {
			return contract.Errorf(contract.InvalidArgument, "prefix_cache", "%q is no number of bytes", w)
		}
		source = FromUser
	}
	err := c.put("prefix_cache_bytes", "prefix_cache_bytes", fmt.Sprint(kept), source, func() { c.Proto.PrefixCacheBytes = &kept })
	if err != nil {
		return err
	}
	quota, dir, source := c.in.Wishes.PrefixDisk, nowhere, FromDefault
	if quota > 0 {
		dir, source = c.in.Wishes.PrefixDiskDir, FromUser
	}
	if quota > 0 && kept == 0 {
		return contract.Errorf(contract.InvalidArgument, "prefix_disk", "what is on disk is used from memory, and the prefix cache has none").
			WithNext("give it some with --prefix-cache")
	}
	if err := c.put("prefix_disk_bytes", "prefix_disk_bytes", fmt.Sprint(quota), source, func() { c.Proto.PrefixDiskBytes = &quota }); err != nil {
		return err
	}
	return c.put("prefix_disk_dir", "prefix_disk_dir", dir, source, func() {
		if quota > 0 {
			c.Proto.PrefixDiskDir = &dir
		}
	})
}
