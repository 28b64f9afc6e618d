package compose

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// none is the value of what goes with no model unless a person asks for it; the family's defaults have no such fields.
const none = "none"

// auxiliaries are the draft and the adapters; programs wait for the device (UsePrograms). A plugin that does not honour one that was asked for is refused by
// name; nothing is left out silently.
func (c *Composition) auxiliaries() error {
	if err := c.putDraft(); err != nil {
		return err
	}
	c.set(Field{"programs", none, FromDefault})
	room, source := c.in.Wishes.AdapterBytes, FromDefault
	if room > 0 {
		source = FromUser
	}
	if err := c.put("adapter_bytes", "adapter_bytes", fmt.Sprint(room), source, func() { c.Proto.AdapterBytes = &room }); err != nil {
		return err
	}
	if len(c.in.Adapters) == 0 {
		c.set(Field{"adapters", none, FromDefault})
		return nil
	}
	return c.put("adapters", "adapters", strings.Join(c.in.Adapters, ", "), FromUser, func() { c.Proto.Adapters = c.in.Adapters })
}

// UsePrograms freezes the programs that a person asked for and that can run beside the plan's device; why says it of those that
// cannot, which is no error. It reports whether the composition changed.
func (c *Composition) UsePrograms(use, why []string) (bool, error) {
	value := strings.Join(use, ", ")
	if value == "" {
		value = none
	}
	if len(why) > 0 {
		value += " (" + strings.Join(why, "; ") + ")"
	}
	changed := !slices.Equal(c.Proto.GetPrograms(), use)
	if changed && !c.in.Declares("programs") {
		return false, contract.Errorf(contract.UnsupportedOption, "programs", "the model's plugin does not honour it")
	}
	c.Proto.Programs = use
	c.set(Field{"programs", value, FromUser})
	return changed, nil
}

func (c *Composition) putDraft() error {
	d := c.in.Draft
	if d == nil {
		c.set(Field{"draft", none, FromDefault})
		return nil
	}
	for path, set := range map[string]bool{"draft.dir": d.Dir != nil, "draft.graph": d.Graph != nil, "draft.depth": true} {
		if set && !c.in.Declares(path) {
			return contract.Errorf(contract.UnsupportedOption, "draft", "the model's plugin does not speculate with %s", draftText(d)).WithNext("leave --draft out")
		}
	}
	c.Proto.Draft = proto.Clone(d).(*cladev1.Draft)
	c.set(Field{"draft", draftText(d), FromUser})
	return nil
}

func draftText(d *cladev1.Draft) string {
	out := d.GetKind()
	if d.GetDir() != "" {
		out += " " + d.GetDir()
	}
	return fmt.Sprintf("%s, at most %d tokens", out, d.GetDepth())
}
