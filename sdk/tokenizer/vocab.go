package tokenizer

// vocab is the tokens of a model with their ids, and the texts of added tokens by id.
type vocab struct {
	ids    map[string]int32
	tokens []string // by id; "" where no token has the id
	size   int64    // entries of the model alone; `tokenizers` numbers added tokens from here
}

func newVocab(n int) *vocab { return &vocab{ids: make(map[string]int32, n)} }

func (v *vocab) id(token string) int32 {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return -1
}

// has reports whether id belongs to a token.
func (v *vocab) has(id int64) bool { return id >= 0 && id < int64(len(v.tokens)) && v.tokens[id] != "" }

// set enters a token of the model.
func (v *vocab) set(subject, token string, id int64) error {
	if _, ok := v.ids[token]; ok {
		return corrupt(subject, "the token %q is there twice", token)
	}
	if err := v.place(subject, token, id); err != nil {
		return err
	}
	v.ids[token] = int32(id)
	v.size++
	return nil
}

// place puts a token at its id.
func (v *vocab) place(subject, token string, id int64) error {
	if id < 0 || id >= maxVocab {
		return corrupt(subject, "the id %d of %q is outside [0, %d)", id, token, maxVocab)
	}
	if len(token) > maxTokenBytes {
		return corrupt(subject, "the token of id %d is %d bytes, more than the limit of %d", id, len(token), maxTokenBytes)
	}
	if n := int(id) + 1 - len(v.tokens); n > 0 {
		v.tokens = append(v.tokens, make([]string, n)...)
	}
	if old := v.tokens[id]; old != "" && old != token {
		return corrupt(subject, "the id %d belongs to both %q and %q", id, old, token)
	}
	v.tokens[id] = token
	return nil
}

// model turns one word into ids.
type model interface {
	// encode appends the ids of word.
	encode(dst []int32, w *work, word string) ([]int32, error)
}
