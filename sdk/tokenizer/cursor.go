package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// cursor reads the two large parts of tokenizer.json, whose bytes encoding/json has already found to be valid JSON. It
// keeps order and duplicates, and is several times faster than decoding into a map.
type cursor struct {
	b []byte
	i int
}

func (c *cursor) skip() {
	for c.i < len(c.b) && (c.b[c.i] == ' ' || c.b[c.i] == '\n' || c.b[c.i] == '\r' || c.b[c.i] == '\t') {
		c.i++
	}
}

// take steps over ch if it is next.
func (c *cursor) take(ch byte) bool {
	c.skip()
	if c.i < len(c.b) && c.b[c.i] == ch {
		c.i++
		return true
	}
	return false
}

func (c *cursor) string() (string, error) {
	c.skip()
	if c.i >= len(c.b) || c.b[c.i] != '"' {
		return "", errors.New("a token is not a string")
	}
	start := c.i
	for c.i++; c.i < len(c.b) && c.b[c.i] != '"'; c.i++ {
		if c.b[c.i] == '\\' {
			c.i++
		}
	}
	c.i++
	quoted := c.b[start:min(c.i, len(c.b))]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return validText(string(quoted[1 : len(quoted)-1])), nil
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	return s, err
}

func (c *cursor) int() (int64, error) {
	c.skip()
	start := c.i
	for c.i < len(c.b) && (c.b[c.i] == '-' || c.b[c.i] >= '0' && c.b[c.i] <= '9') {
		c.i++
	}
	if c.i < len(c.b) && (c.b[c.i] == '.' || c.b[c.i]|0x20 == 'e') || c.i == start {
		return 0, errors.New("is not an integer")
	}
	return strconv.ParseInt(string(c.b[start:c.i]), 10, 64)
}

func (c *cursor) float() (float64, error) {
	c.skip()
	start := c.i
	for c.i < len(c.b) && bytes.IndexByte([]byte("+-.eE0123456789"), c.b[c.i]) >= 0 {
		c.i++
	}
	return strconv.ParseFloat(string(c.b[start:c.i]), 64)
}
