package plugin

import (
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Limits of one prompt, so that a broken host cannot fill memory. They lie far above any model's context.
const (
	maxPromptIDs   = 16 << 20
	maxMediaItems  = 1024
	maxMediaBytes  = 1 << 30
	maxControlWait = 16
)

// prompt assembles the chunks of one request.
type prompt struct {
	// limit is the model's context length; zero when the model states none.
	limit int
	ids   []int32
	media []Media
	// open is true while the last media item still expects chunks.
	open  bool
	bytes int
}

func (p *prompt) addIDs(c *cladev1.IdsChunk) error {
	n := len(p.ids) + len(c.GetIds())
	if p.limit > 0 && n > p.limit {
		return contract.Errorf(contract.ContextTooLong, "prompt", "more than %d tokens, the model's context", p.limit)
	}
	if n > maxPromptIDs {
		return contract.Errorf(contract.ContextTooLong, "prompt", "more than %d tokens", maxPromptIDs)
	}
	p.ids = append(p.ids, c.GetIds()...)
	return nil
}

func (p *prompt) addMedia(c *cladev1.MediaChunk) error {
	refuse := func(format string, args ...any) error {
		return contract.Errorf(contract.InvalidArgument, "media", format, args...)
	}
	if !p.open {
		if int(c.Item) != len(p.media) {
			return refuse("chunk of item %d where item %d begins", c.Item, len(p.media))
		}
		if len(p.media) == maxMediaItems {
			return refuse("more than %d items", maxMediaItems)
		}
		p.media = append(p.media, Media{
			Type: c.Type, Width: int(c.Width), Height: int(c.Height), Position: int(c.Position),
		})
	}
	item := &p.media[len(p.media)-1]
	if int(c.Item) != len(p.media)-1 {
		return refuse("chunk of item %d inside item %d", c.Item, len(p.media)-1)
	}
	if p.bytes += len(c.Data); p.bytes > maxMediaBytes {
		return refuse("more than %d bytes", maxMediaBytes)
	}
	item.Data = append(item.Data, c.Data...)
	p.open = !c.Last
	return nil
}

func (p *prompt) end() error {
	if p.open {
		return contract.Errorf(contract.InvalidArgument, "media", "item %d has no last chunk", len(p.media)-1)
	}
	return nil
}
