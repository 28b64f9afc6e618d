package lookahead

// LongestMatch is the most tokens that a lookup compares, ShortestMatch the fewest that count as one: a single token recurs
// everywhere.
const (
	LongestMatch  = 8
	ShortestMatch = 2
)

// lookback bounds what a lookup reads: far enough for a long document, and tens of microseconds at most.
const lookback = 1 << 16

// Lookup finds the longest end of ids, of LongestMatch tokens at most, that stands earlier in them too, the latest of equally long
// ones, and returns what follows there and how long the end is. Nothing: nil and 0.
func Lookup(ids []int32) (following []int32, length int) {
	n := len(ids)
	if n < ShortestMatch+1 {
		return nil, 0
	}
	last := ids[n-1]
	best := 0
	for end := n - 1; end >= ShortestMatch && end > n-lookback; end-- { // ids[:end] ends like ids
		if ids[end-1] != last {
			continue
		}
		length := 1
		for length < LongestMatch && length < end && ids[end-1-length] == ids[n-1-length] {
			length++
		}
		if length > best {
			best, following = length, ids[end:]
			if best == LongestMatch {
				break
			}
		}
	}
	if best < ShortestMatch {
		return nil, 0
	}
	return following, best
}
