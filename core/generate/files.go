package generate

import (
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/family"
)

// FromRecord is what a family's record asks for.
func FromRecord(g family.Generation) Settings {
	s := Settings{Temperature: g.Temperature, TopP: g.TopP, TopK: g.TopK, MinP: g.MinP}
	if g.RepetitionPenalty != nil {
		s.Repetition = &Penalty{Value: *g.RepetitionPenalty}
	}
	return s
}

// FromFiles reads what generation_config.json asks for, as its authors' own library does: sampling values count only with
// do_sample: true, and then an absent temperature is 1; without it the model's default is greedy.
func FromFiles(c artifact.Config) (Settings, error) {
	var s Settings
	sample, _, err := c.Bool("do_sample")
	if err != nil {
		return s, err
	}
	if v, ok, err := c.Float("repetition_penalty"); err != nil {
		return s, err
	} else if ok && v != 1 {
		s.Repetition = &Penalty{Value: v}
	}
	if !sample {
		return s, nil
	}
	one := 1.0
	s.Temperature = &one
	for _, f := range []struct {
		name string
		at   **float64
	}{{"temperature", &s.Temperature}, {"top_p", &s.TopP}, {"min_p", &s.MinP}} {
		v, ok, err := c.Float(f.name)
		if err != nil {
			return s, err
		}
		if ok {
			*f.at = &v
		}
	}
	k, ok, err := c.Int("top_k")
	if err != nil {
		return s, err
	}
	if ok && k > 0 && k < 1<<31 {
		n := uint32(k)
		s.TopK = &n
	}
	return s, nil
}
