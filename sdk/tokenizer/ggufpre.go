package tokenizer

// preTokenizer is what a name in tokenizer.ggml.pre stands for: the pattern, and what the models behind the name do
// besides that GGUF does not say. Sources: the tokenizer.json of those models, and llama.cpp's table of names.
type preTokenizer struct {
	split        []splitter // each behind the one before
	ignoreMerges bool
	addBOS       bool
	nfc          bool
	// plain words are characters, not bytes; with ▁ for a space, as SentencePiece has them, unless spaces stay.
	plain, spaces bool
	// wholeLines: of plain words, lines of nothing but line ends are one token where the vocabulary has it.
	wholeLines bool
}

// splitter is a pattern, or another step.
type splitter struct {
	pattern string
	step    step
}

var (
	eachDigit = splitter{step: digitsStep{individual: true}}
	byThrees  = splitter{step: digitGroups{}}
)

func (p preTokenizer) steps() ([]step, error) {
	var steps []step
	for _, s := range p.split {
		if s.step != nil {
			steps = append(steps, s.step)
			continue
		}
		if sc, ok := scanners[s.pattern]; ok {
			steps = append(steps, scanStep{sc})
			continue
		}
		find, err := newRegex(ggufKey("pre"), s.pattern)
		if err != nil {
			return nil, err
		}
		steps = append(steps, splitStep{find: find, do: isolated})
	}
	if p.plain {
		return steps, nil
	}
	return append(steps, byteChars{}), nil
}
