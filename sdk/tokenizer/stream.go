package tokenizer

import "strings"

// Stream decodes ids one by one. The texts it returns, joined, are what Decode gives for all the ids: a character whose
// bytes span tokens comes with the last of them. A Stream serves one goroutine.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	stages      []stage
	emits       []func(string) // emits[i] passes a piece to stage i; the last one collects
	out         strings.Builder
}

// NewStream begins a text. With skipSpecial, special tokens give no text.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	s := &Stream{t: t, skipSpecial: skipSpecial}
	n := len(t.decoder)
	s.emits = make([]func(string), n+1)
	s.emits[n] = func(piece string) { s.out.WriteString(piece) }
	for i := n - 1; i >= 0; i-- {
		st, next := t.decoder[i](), s.emits[i+1]
		s.stages = append([]stage{st}, s.stages...)
		s.emits[i] = func(piece string) { st.push(piece, next) }
	}
	return s
}

// Push gives the text that id completes; often all of the token's, sometimes "". An id without a token gives "".
func (s *Stream) Push(id int32) string {
	s.feed(id)
	return s.take()
}

// Flush ends the text and gives what was held; bytes that never became a character are U+FFFD.
func (s *Stream) Flush() string {
	for i, st := range s.stages {
		st.flush(s.emits[i+1])
	}
	return s.take()
}

func (s *Stream) feed(id int32) {
	token, ok := s.t.Token(id)
	if !ok || s.skipSpecial && s.t.special[id] {
		return
	}
	s.emits[0](token)
}

func (s *Stream) take() string {
	text := s.out.String()
	s.out.Reset()
	return text
}

// Decode gives the text of ids. Ids without a token give nothing, as in `tokenizers`; with skipSpecial, special tokens
// give nothing either.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	s := t.NewStream(skipSpecial)
	for _, id := range ids {
		s.feed(id)
	}
	for i, st := range s.stages {
		st.flush(s.emits[i+1])
	}
	return s.take()
}
