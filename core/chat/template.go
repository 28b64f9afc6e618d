package chat

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ardanlabs/jinja"

	"github.com/clademl/clade/sdk/contract"
)

// Template is a compiled chat template.
type Template struct {
	compiled *jinja.Template
	specials map[string]string
}

// RenderOptions are the arguments of a rendering besides the messages.
type RenderOptions struct {
	AddGenerationPrompt bool
	// ToolsJSON is a list of tool definitions and DocumentsJSON one of documents; they reach the template with the client's order
	// of keys. Empty renders as a chat without them.
	ToolsJSON, DocumentsJSON []byte
	// Tools are what PrepareTools made, in the place of ToolsJSON.
	Tools []any
	// Kwargs are further variables, such as enable_thinking. They override the variables above.
	Kwargs map[string]any
	// Now is what strftime_now sees; the zero time is the time of the call.
	Now time.Time
}

// NewTemplate compiles a model's template. specials are the texts of bos_token, eos_token and so on
// ((*tokenizer.Tokenizer).SpecialTokens).
func NewTemplate(src string, specials map[string]string) (_ *Template, err error) {
	if len(src) > maxSource {
		return nil, contract.Errorf(contract.UnsupportedModel, subject, "is %d bytes, more than the limit of %d", len(src), maxSource)
	}
	defer func() {
		if r := recover(); r != nil {
			err = contract.Errorf(contract.UnsupportedModel, subject, "is not understood: %v", r)
		}
	}()
	rewritten, err := rewrite(src)
	if err != nil {
		return nil, contract.Errorf(contract.UnsupportedModel, subject, "is not understood: %w", err)
	}
	compiled, err := jinja.Compile(rewritten)
	if err != nil {
		return nil, contract.Errorf(contract.UnsupportedModel, subject, "is not understood: %w", err)
	}
	return &Template{compiled: compiled, specials: maps.Clone(specials)}, nil
}

// Render gives the prompt of messages. What the template raises is InvalidArgument with the template's own text.
func (t *Template) Render(messages []map[string]any, opts RenderOptions) (string, error) {
	r := &rendering{deadline: time.Now().Add(maxRender), now: opts.Now}
	if r.now.IsZero() {
		r.now = time.Now()
	}
	data, err := t.variables(messages, opts, r)
	if err != nil {
		return "", err
	}
	text, err := r.run(t.compiled, data)
	switch {
	case r.err() != nil:
		return "", r.err()
	case err != nil:
		return "", contract.Errorf(contract.InvalidArgument, subject, "cannot render these messages: %w", err)
	case len(text) > maxOutput:
		return "", contract.Errorf(contract.InvalidArgument, subject, "gave %d bytes, more than the limit of %d", len(text), maxOutput)
	}
	return text, nil
}

func (t *Template) variables(messages []map[string]any, opts RenderOptions, r *rendering) (map[string]jinja.Value, error) {
	vars := map[string]any{
		"messages": aliasReasoning(messages), "tools": nil, "documents": nil,
		"add_generation_prompt": opts.AddGenerationPrompt,
	}
	if opts.Tools != nil {
		vars["tools"] = opts.Tools
	} else if len(opts.ToolsJSON) > 0 {
		tools, err := parseList("tools", opts.ToolsJSON)
		if err != nil {
			return nil, err
		}
		vars["tools"] = tools
	}
	if len(opts.DocumentsJSON) > 0 {
		documents, err := parseList("documents", opts.DocumentsJSON)
		if err != nil {
			return nil, err
		}
		vars["documents"] = documents
	}
	for name, text := range t.specials {
		vars[name] = text
	}
	maps.Copy(vars, opts.Kwargs)
	data := make(map[string]jinja.Value, len(vars)+5)
	for name, v := range vars {
		value, err := toValue(v, 0)
		if err != nil {
			return nil, contract.Errorf(contract.InvalidArgument, name, "%w", err)
		}
		data[name] = value
	}
	for name, fn := range r.functions() {
		data[name] = jinja.NewCallable(name, fn)
	}
	return data, nil
}

// aliasReasoning gives a message's reasoning under the names that templates read, as transformers does.
func aliasReasoning(messages []map[string]any) []map[string]any {
	out := make([]map[string]any, len(messages))
	for i, m := range messages {
		out[i] = m
		for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
			if reasoning := m[name]; reasoning != nil {
				c := maps.Clone(m)
				if _, ok := c["thinking"]; !ok {
					c["thinking"] = reasoning
				}
				c["reasoning_content"] = reasoning
				out[i] = c
				break
			}
		}
	}
	return out
}

type function = func(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error)

// rendering is the state of one Render call: its limits, and the error that ended it.
type rendering struct {
	deadline time.Time
	now      time.Time
	steps    int
	written  int // bytes that {{ }} wrote
	charged  int // bytes since the heap was looked at
	base     uint64
	failed   atomic.Pointer[contract.Error]
}

func (r *rendering) err() error {
	if e := r.failed.Load(); e != nil {
		return e
	}
	return nil
}

func (r *rendering) fail(format string, args ...any) error {
	e := contract.Errorf(contract.InvalidArgument, subject, format, args...)
	r.failed.CompareAndSwap(nil, e)
	return e
}

// run renders on a goroutine of its own, because one expression cannot be interrupted. After the deadline the caller gets
// an error at once and the goroutine ends at its next loop iteration or macro call.
func (r *rendering) run(t *jinja.Template, data map[string]jinja.Value) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var res result
		defer func() {
			if p := recover(); p != nil {
				res.err = fmt.Errorf("the template engine failed: %v", p)
			}
			done <- res
		}()
		res.text, res.err = t.RenderValues(data)
	}()
	timer := time.NewTimer(time.Until(r.deadline))
	defer timer.Stop()
	select {
	case res := <-done:
		return res.text, res.err
	case <-timer.C:
		return "", r.fail("did not end within %v", maxRender)
	}
}

// depthEvery spaces out the look at the stack, which costs as much as the stack is deep.
const depthEvery = 64

// tick runs at the start of each loop iteration and macro call.
func (r *rendering) tick([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	r.steps++
	switch {
	case r.failed.Load() != nil:
		return jinja.None(), r.failed.Load()
	case r.steps > maxSteps:
		return jinja.None(), r.fail("took more than %d loop iterations and macro calls", maxSteps)
	}
	if r.steps%depthEvery != 0 {
		return jinja.None(), nil
	}
	var pc [1]uintptr
	if runtime.Callers(maxFrames, pc[:]) > 0 {
		return jinja.None(), r.fail("calls itself without end")
	}
	return jinja.None(), nil
}

// functions are what a rewritten template calls.
func (r *rendering) functions() map[string]function {
	return map[string]function{
		raiseName: r.raise, "raise_exception": r.raiseNothing, "strftime_now": r.strftime, "range": r.numbers, tickName: r.tick,
		printName: r.print, foldName: r.fold, negName: r.negate, inName: r.in, attrName: r.attribute, itemName: r.item, sliceName: r.slice,
		methodName: r.method, iterName: r.iterate, testName: r.test, filterName: r.filter,
	}
}

// filter is args[1] | args[0](args[2:]).
func (r *rendering) filter(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	return r.apply(args[0].AsString(), call{args[1:], kwargs})
}

// raise is raise_exception at the line args[0].
func (r *rendering) raise(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 2 {
		return r.raiseNothing(nil, nil)
	}
	e := &contract.Error{Kind: contract.InvalidArgument, Subject: fmt.Sprintf("%s, line %s", subject, printed(args[0])), Message: printed(args[1])}
	r.failed.CompareAndSwap(nil, e)
	return jinja.None(), e
}

func (r *rendering) raiseNothing([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	return jinja.None(), errors.New("raise_exception takes one message")
}

func printed(v jinja.Value) string {
	if v.IsString() {
		return v.AsString()
	}
	return v.String()
}

func (r *rendering) strftime(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 || !args[0].IsString() {
		return jinja.None(), errors.New("strftime_now takes one format")
	}
	return jinja.NewString(strftime(r.now, args[0].AsString())), nil
}

// numbers is range, with the limit of jinja2's sandbox.
func (r *rendering) numbers(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	var n [3]int64
	for i, a := range args {
		if i >= len(n) || !a.IsInt() {
			return jinja.None(), errors.New("range takes one to three integers")
		}
		n[i] = a.AsInt()
	}
	start, stop, step := n[0], n[1], int64(1)
	switch len(args) {
	case 0:
		return jinja.None(), errors.New("range takes one to three integers")
	case 1:
		start, stop = 0, n[0]
	case 3:
		step = n[2]
	}
	if step == 0 {
		return jinja.None(), errors.New("range: the step is zero")
	}
	var items []jinja.Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(items) >= maxRange {
			return jinja.None(), fmt.Errorf("range is longer than %d", maxRange)
		}
		items = append(items, jinja.NewInt(i))
	}
	r.steps += len(items) / 16 // a long range in a loop's head costs as much as short loops do
	return jinja.NewList(items), nil
}
