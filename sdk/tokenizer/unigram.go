package tokenizer

import (
	"math"
	"unicode/utf8"

	"github.com/clademl/clade/sdk/contract"
)

// unigram is the model of the same name: the segmentation whose tokens have the largest sum of scores. Like `tokenizers`,
// it joins neighbouring unknown characters into one unknown.
type unigram struct {
	vocab        *vocab
	tree         *prefixTree
	scores       []float64
	unk          int32 // -1: none
	unkScore     float64
	byteFallback bool
	fallback     [256]int32
	subject      string // of errors: where the file says which token is the unknown one
}

// unkPenalty is what an unknown character costs beyond the worst token; SentencePiece's constant.
const unkPenalty = 10

func newUnigram(v *vocab, scores []float64, unk int32, byteFallback bool, subject string) *unigram {
	m := &unigram{vocab: v, scores: scores, unk: unk, byteFallback: byteFallback, subject: subject}
	m.tree = newPrefixTree(len(scores))
	worst := math.Inf(1)
	for id, score := range scores {
		worst = min(worst, score)
		if token := v.tokens[id]; token != "" {
			m.tree.add(token, int32(id)) // of a text that is there twice, the later id counts
		}
	}
	m.unkScore = worst - unkPenalty
	for b := range 256 {
		m.fallback[b] = v.id(byteToken(byte(b)))
	}
	return m
}

// arrival is the best way to reach a place in the text.
type arrival struct {
	score float64
	from  int32 // -1: not reached
	id    int32
}

func (m *unigram) encode(dst []int32, w *work, text string) ([]int32, error) {
	if err := m.arrive(w, text); err != nil {
		return dst, err
	}
	// The path is read backwards; n counts what was appended in that order.
	n := len(dst)
	for end := len(text); end > 0; {
		a := w.arrivals[end]
		start := int(a.from)
		if a.id == m.unk {
			for start > 0 && w.arrivals[start].id == m.unk {
				start = int(w.arrivals[start].from)
			}
		}
		dst = m.appendReversed(dst, text[start:end], a.id)
		end = start
	}
	for i, j := n, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst, nil
}

// arrive fills w.arrivals for every place of text.
func (m *unigram) arrive(w *work, text string) error {
	if cap(w.arrivals) < len(text)+1 {
		w.arrivals = make([]arrival, len(text)+1)
	}
	w.arrivals = w.arrivals[:len(text)+1]
	for i := range w.arrivals {
		w.arrivals[i] = arrival{from: -1}
	}
	for at := 0; at < len(text); {
		_, width := utf8.DecodeRuneInString(text[at:])
		here := w.arrivals[at].score
		single := false
		for node, end := int32(0), at; end < len(text); {
			if node = m.tree.step(node, text[end]); node < 0 {
				break
			}
			end++
			id := m.tree.ids[node]
			if id < 0 {
				continue
			}
			w.arrivals[end].offer(here+m.scores[id], at, id)
			single = single || end == at+width
		}
		if !single && w.arrivals[at+width].offer(here+m.unkScore, at, m.unk) && m.unk < 0 {
			return missingUnk(m.subject)
		}
		at += width
	}
	return nil
}

func (a *arrival) offer(score float64, from int, id int32) bool {
	if a.from >= 0 && score <= a.score {
		return false
	}
	*a = arrival{score, int32(from), id}
	return true
}

// appendReversed appends one segment's ids, last first.
func (m *unigram) appendReversed(dst []int32, segment string, id int32) []int32 {
	if id != m.unk {
		return append(dst, id)
	}
	if id, ok := m.vocab.ids[segment]; ok {
		return append(dst, id)
	}
	if m.byteFallback && m.allBytes(segment) {
		for i := len(segment) - 1; i >= 0; i-- {
			dst = append(dst, m.fallback[segment[i]])
		}
		return dst
	}
	return append(dst, m.unk)
}

func (m *unigram) allBytes(s string) bool {
	for i := range len(s) {
		if m.fallback[s[i]] < 0 {
			return false
		}
	}
	return true
}

// missingUnk is met only by a text that needs the unknown token, as in `tokenizers`.
func missingUnk(subject string) error {
	return contract.Errorf(contract.ArtifactCorrupt, subject, "the text has a part without a token, and the vocabulary has no unknown token")
}
