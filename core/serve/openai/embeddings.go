package openai

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// maxInputs is OpenAI's bound on the inputs of one request.
const maxInputs = 2048

// embedRequest is a body of /v1/embeddings that was understood completely.
type embedRequest struct {
	generate.EmbedRequest
	model  string
	base64 bool
}

// embedFields are the known fields; every other is refused by name.
var embedFields = map[string]func(q *embedRequest, name string, raw json.RawMessage) error{
	"model":       func(q *embedRequest, name string, raw json.RawMessage) error { return text(&q.model, name, raw) },
	"instruction": func(q *embedRequest, name string, raw json.RawMessage) error { return text(&q.Instruction, name, raw) },
	"input":       readInputs,
	loraField: func(q *embedRequest, name string, raw json.RawMessage) (err error) {
		q.Adapter, err = ReadAdapters(name, raw)
		return err
	},
	"user": func(*embedRequest, string, json.RawMessage) error { return nil },
	"encoding_format": func(q *embedRequest, name string, raw json.RawMessage) error {
		var format string
		if err := text(&format, name, raw); err != nil {
			return err
		}
		if format != "float" && format != "base64" {
			return badField(contract.InvalidArgument, name, "%q is neither float nor base64", format)
		}
		q.base64 = format == "base64"
		return nil
	},
	"dimensions": func(q *embedRequest, name string, raw json.RawMessage) error {
		if json.Unmarshal(raw, &q.Dimensions) != nil || q.Dimensions < 1 {
			return badField(contract.InvalidArgument, name, "want a positive whole number")
		}
		return nil
	},
}

func text(into *string, name string, raw json.RawMessage) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return badField(contract.InvalidArgument, name, "want a text")
	}
	return nil
}

// readInputs reads a text, several texts, ids, or several lists of ids.
func readInputs(q *embedRequest, name string, raw json.RawMessage) error {
	one := generate.EmbedInput{}
	if json.Unmarshal(raw, &one.Text) == nil || readIDs(raw, &one.IDs) {
		q.Inputs = []generate.EmbedInput{one}
		return nil
	}
	var many []json.RawMessage
	if err := json.Unmarshal(raw, &many); err != nil || len(many) == 0 || len(many) > maxInputs {
		return badField(contract.InvalidArgument, name, "want a text, token ids, or 1 to %d of them", maxInputs)
	}
	for _, item := range many {
		var in generate.EmbedInput
		if isNull(item) || json.Unmarshal(item, &in.Text) != nil && !readIDs(item, &in.IDs) {
			return badField(contract.InvalidArgument, name, "want texts or lists of token ids")
		}
		q.Inputs = append(q.Inputs, in)
	}
	return nil
}

// readIDs reads a list of numbers, none of them null; false when it is none.
func readIDs(raw json.RawMessage, into *[]int32) bool {
	var list []*int32
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 || slices.Contains(list, nil) {
		return false
	}
	for _, id := range list {
		*into = append(*into, *id)
	}
	return true
}

func parseEmbed(body []byte) (*embedRequest, error) {
	if !utf8.Valid(body) {
		return nil, badField(contract.InvalidArgument, "body", "is not UTF-8 text")
	}
	tree, err := object("body", body)
	if err != nil {
		return nil, err
	}
	q := &embedRequest{}
	for _, name := range sortedKeys(tree) {
		read, ok := embedFields[name]
		switch {
		case !ok:
			return nil, badField(contract.UnsupportedOption, name, "unknown or unsupported field")
		case isNull(tree[name]):
			continue
		}
		if err := read(q, name, tree[name]); err != nil {
			return nil, err
		}
	}
	if len(q.Inputs) == 0 {
		return nil, badField(contract.InvalidArgument, "input", "is missing")
	}
	return q, nil
}

// vector is one entry of the answer; its embedding is a list of numbers or base64 of little-endian float32.
type vector struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

func (a *API) embed(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	q, err := parseEmbed(body)
	if err != nil {
		WriteError(w, err)
		return
	}
	model, card, release, err := a.models.Get(r.Context(), q.model)
	if err != nil {
		WriteError(w, err)
		return
	}
	defer release()
	made, err := model.Embed(r.Context(), q.EmbedRequest)
	if err != nil {
		WriteError(w, err)
		return
	}
	data := make([]vector, len(made.Vectors))
	for i, v := range made.Vectors {
		data[i] = vector{"embedding", i, v}
		if q.base64 {
			data[i].Embedding = encodeVector(v)
		}
	}
	writeJSON(w, http.StatusOK, struct {
		Object string         `json:"object"`
		Data   []vector       `json:"data"`
		Model  string         `json:"model"`
		Usage  map[string]int `json:"usage"`
	}{"list", data, card.ID, map[string]int{"prompt_tokens": made.Tokens, "total_tokens": made.Tokens}})
}

func encodeVector(v []float32) string {
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(raw)
}
