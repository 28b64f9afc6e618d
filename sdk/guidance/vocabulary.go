package guidance

// #include "shim.h"
import "C"

import (
	"bytes"
	"runtime/cgo"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/clademl/clade/sdk/contract"
)

// Tokenizer is what a Vocabulary is made from; *tokenizer.Tokenizer is one. It is used from several threads at once.
type Tokenizer interface {
	// TokenBytes are the bytes of text that an id stands for, whatever stands beside it; nil for an id without a token.
	TokenBytes(id int32) []byte
	// IsSpecial tells ids that give no text.
	IsSpecial(id int32) bool
	Encode(text string, addSpecial bool) ([]int32, error)
}

// special is the byte, of no UTF-8 text, that llguidance knows special tokens by.
const special = 0xFF

// Vocabulary is a model's tokens, prepared for masks. It serves any number of goroutines.
type Vocabulary struct {
	tokenizer Tokenizer
	width     int
	tokens    [][]byte
	byText    map[string]int32 // for text that the tokenizer spells with other bytes
	longest   int
	handle    cgo.Handle
	ptr       unsafe.Pointer
	users     atomic.Int64 // matchers that are open
	closed    sync.Once
}

// Vocabulary prepares the ids below width, the width of the model's logits. eos are the ids that end a text: they are allowed
// where the grammar is complete, and nowhere else.
func (l *Library) Vocabulary(t Tokenizer, width int, eos []int32) (*Vocabulary, error) {
	if width < 1 || width > 1<<24 {
		return nil, contract.Errorf(contract.InvalidArgument, "vocabulary", "%d ids", width)
	}
	ends := make([]uint32, 0, len(eos))
	for _, id := range eos {
		if id >= 0 && int(id) < width && !slices.Contains(ends, uint32(id)) {
			ends = append(ends, uint32(id))
		}
	}
	if len(ends) == 0 {
		return nil, contract.Errorf(contract.UnsupportedOption, "constraint", "the model names no token that ends a text, so a grammar could never end")
	}
	v := &Vocabulary{tokenizer: t, width: width, tokens: make([][]byte, width), byText: map[string]int32{}}
	v.read(ends)
	v.handle = cgo.NewHandle(v)
	if err := v.prepare(ends); err != nil {
		v.handle.Delete()
		return nil, err
	}
	return v, nil
}

// read collects the tokens' bytes, with special ones marked.
func (v *Vocabulary) read(ends []uint32) {
	for id := range v.tokens {
		text := v.tokenizer.TokenBytes(int32(id))
		switch {
		case len(text) == 0 || text[0] == special: // 0xFF begins no text: such a token is never allowed
		case v.tokenizer.IsSpecial(int32(id)) || slices.Contains(ends, uint32(id)):
			v.tokens[id] = append([]byte{special}, text...)
		default:
			v.tokens[id] = text
			if _, taken := v.byText[string(text)]; !taken {
				v.byText[string(text)] = int32(id)
			}
			v.longest = max(v.longest, len(text))
		}
	}
}

func (v *Vocabulary) prepare(ends []uint32) error {
	lens, all := make([]uint32, v.width), []byte{}
	for id, text := range v.tokens {
		lens[id] = uint32(len(text))
		all = append(all, text...)
	}
	if len(all) == 0 {
		return contract.Errorf(contract.UnsupportedOption, "constraint", "the model's tokens stand for no text")
	}
	var message [512]C.char
	v.ptr = C.cg_vocabulary(C.uint32_t(v.width), (*C.uint32_t)(&lens[0]), (*C.uint8_t)(&all[0]), (*C.uint32_t)(&ends[0]), C.uint32_t(len(ends)),
		C.uintptr_t(v.handle), &message[0], C.size_t(len(message)))
	if v.ptr == nil {
		return contract.Errorf(contract.Internal, "constraint", "the vocabulary was refused: %s", firstLine(C.GoString(&message[0])))
	}
	return nil
}

// Words is the length of a mask: one bit an id.
func (v *Vocabulary) Words() int { return (v.width + 31) / 32 }

// Close frees the vocabulary; every Matcher of it must be closed before.
func (v *Vocabulary) Close() error {
	if n := v.users.Load(); n > 0 {
		return contract.Errorf(contract.Internal, "constraint", "%d matchers are still open", n)
	}
	v.closed.Do(func() {
		C.cg_vocabulary_free(v.ptr)
		v.handle.Delete()
	})
	return nil
}

// encode tokenizes a text as the model's own tokenizer does in the middle of a text, so that what a grammar forces is spelled
// as the model was trained. The ids stand for exactly these bytes: a tokenizer that adds a space in front, or that reads the
// spelling of a special token as that token, is not followed there.
func (v *Vocabulary) encode(text string) []int32 {
	if ids, err := v.tokenizer.Encode(text, false); err == nil && v.spell(ids, text) {
		return ids
	}
	const before = "\n" // a text before it takes the space that some tokenizers put in front of the first word
	if ids, err := v.tokenizer.Encode(before+text, false); err == nil {
		for i := len(ids) - 1; i > 0; i-- {
			if tail := ids[i:]; v.spell(tail, text) {
				return tail
			}
		}
	}
	return v.longestFirst(text)
}

// spell tells whether ids stand for exactly text.
func (v *Vocabulary) spell(ids []int32, text string) bool {
	at := 0
	for _, id := range ids {
		if id < 0 || int(id) >= v.width || len(v.tokens[id]) == 0 || !strings.HasPrefix(text[at:], string(v.tokens[id])) {
			return false
		}
		at += len(v.tokens[id])
	}
	return at == len(text)
}

// longestFirst takes the longest token at each place. Bytes that no token stands for end it.
func (v *Vocabulary) longestFirst(text string) []int32 {
	var ids []int32
	for len(text) > 0 {
		n := min(len(text), v.longest)
		for ; n > 0; n-- {
			if id, ok := v.byText[text[:n]]; ok {
				ids = append(ids, id)
				break
			}
		}
		if n == 0 {
			return ids
		}
		text = text[n:]
	}
	return ids
}

//export cgTokenize
func cgTokenize(handle C.uintptr_t, text *C.uint8_t, n C.size_t, out *C.uint32_t, room C.size_t) C.size_t {
	v := cgo.Handle(handle).Value().(*Vocabulary)
	ids := v.encode(string(bytes.Clone(unsafe.Slice((*byte)(text), int(n)))))
	dst := unsafe.Slice((*uint32)(out), int(room))
	for i := range min(len(ids), len(dst)) {
		dst[i] = uint32(ids[i])
	}
	return C.size_t(len(ids))
}

// firstLine leaves out the states and traces that llguidance appends. Its panics are assertions about sizes.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n<")
	if what, ok := strings.CutPrefix(s, "panic: "); ok {
		s = "it is too large or too intricate (" + what + ")"
	}
	return strings.Join(strings.Fields(s), " ")
}
